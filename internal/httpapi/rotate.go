package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type rotateKeyOutput struct {
	Status int
	Body   api.Node
}

// rotateKey asks a node for a new key; the answer shows how far that is, as reading the node does.
func (s *server) rotateKey(ctx context.Context, in *changeInput) (*rotateKeyOutput, error) {
	n, site, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		return &rotateKeyOutput{Status: http.StatusOK, Body: nodeView(n, site.holder)}, nil
	}
	if err := s.store.AskRotation(ctx, n.Name); err != nil {
		return nil, err
	}
	s.Log.Info("node key rotation requested", "node", n.Name, "by", serve.CallOf(ctx).Actor)
	n, site, err = s.visibleNode(ctx, in.Name)
	return &rotateKeyOutput{Status: http.StatusAccepted, Body: nodeView(n, site.holder)}, err
}

func keyView(n nodes.Node) *api.NodeKey {
	if n.EnrolledAt == nil || n.RevokedAt != nil {
		return nil
	}
	k := &api.NodeKey{Since: *n.EnrolledAt}
	if n.RotatedAt != nil && n.RotatedAt.After(k.Since) {
		k.Since = *n.RotatedAt
	}
	if n.Rotation != nil {
		k.Rotation, k.AskedAt = api.RotationAsked, &n.Rotation.AskedAt
		if n.Rotation.Offered {
			k.Rotation = api.RotationOffered
		}
	}
	return k
}
