package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

type putPoolInput struct {
	NameParam
	MutationParams
	CreateParams
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

func (s *server) mountPools() {
	s.mountKind(declaredKind{kind: fleet.KindPool, remove: forAdmins})
	op := endpoint(http.MethodPut, "/api/v1/pools/{name}", "put-pool", "Declare a pool of nodes")
	register(s, forAdmins, op, s.putPool)
	takes[PoolPut](s, op)
}

func (s *server) putPool(ctx context.Context, in *putPoolInput) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	put := PoolPut{Project: in.Project}
	raw, err := s.readJSON(ctx, &put)
	if err != nil {
		return nil, err
	}
	spec := poolSpecOf(put)
	if err := put.Check(); err != nil {
		return nil, err
	}
	if err := fleet.ValidateLabels("/labels", put.Labels); err != nil {
		return nil, err
	}
	w, err := s.write(ctx, fleet.PoolKey(fleet.PoolName(in.Name)), in.MutationParams, raw)
	if err != nil {
		return nil, err
	}
	if err := in.bind(&w); err != nil {
		return nil, err
	}
	if w.Project, err = s.projectOf(ctx, put.Project); err != nil {
		return nil, err
	}
	w.Labels = put.Labels
	written, err := s.store.Declare(ctx, w, spec)
	if err != nil {
		return nil, err
	}
	return declared(written, in.MutationParams), nil
}

func poolSpecOf(put PoolPut) fleet.PoolSpec {
	return fleet.PoolSpec{Sites: put.Sites, Nodes: put.Nodes, Labels: put.NodeLabels, MaxReplicas: put.MaxReplicas}
}

// Check looks at what can be seen without the region.
func (p PoolPut) Check() error { return ofPool(poolSpecOf(p).Validate()) }

// ofPool turns a place in a spec into one in the body of its PUT, where labels are the object's.
func ofPool(err error) error {
	var e *fleet.Error
	if errors.As(err, &e) && (e.Field == "/labels" || strings.HasPrefix(e.Field, "/labels/")) {
		return e.At("/nodeLabels" + strings.TrimPrefix(e.Field, "/labels"))
	}
	return err
}
