package node

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// maxDefinition bounds one definition.
const maxDefinition = 1 << 20

// NodeReplicas reads the node's set of replicas; unchanged means that have is still the current version. An
// answer that is cut short, or has no version, is an error, never a shorter set.
func (c *Client) NodeReplicas(ctx context.Context, have fleet.SetVersion) (set fleet.NodeReplicas, unchanged bool, err error) {
	tag := ""
	if have != (fleet.SetVersion{}) {
		tag = strconv.Quote(have.String())
	}
	body, answered, err := c.read(ctx, "replicas", tag, maxAnswer)
	if err != nil || body == nil {
		return set, err == nil, err
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return set, false, fleet.Errorf(fleet.Communication, "read the set of replicas: %w", err)
	}
	if at := (fleet.SetVersion{Era: set.Era, Number: set.Version}); strings.TrimPrefix(answered, "W/") != strconv.Quote(at.String()) {
		return set, false, fleet.Errorf(fleet.Communication, "the set of replicas came without its version")
	}
	return set, false, nil
}

// ReplicaDefinition reads a definition that the node's set names.
func (c *Client) ReplicaDefinition(ctx context.Context, hash fleet.Hash) ([]byte, error) {
	body, _, err := c.read(ctx, "definitions/"+url.PathEscape(string(hash)), "", maxDefinition)
	return body, err
}

// ReplicaLog sends a piece of a replica's output.
func (c *Client) ReplicaLog(ctx context.Context, l replicas.LogPiece) error {
	return c.signed(ctx, "replica-logs", l, nil)
}

// ReplicaSamples sends the resource usage of replicas.
func (c *Client) ReplicaSamples(ctx context.Context, all []replicas.Sample) error {
	return c.signed(ctx, "replica-samples", struct {
		Samples []replicas.Sample `json:"samples"`
	}{all}, nil)
}

// read gets a resource of the node; the body is nil if it still has the tag. Like signed, it retries with a key
// that changed during the call.
func (c *Client) read(ctx context.Context, tail, tag string, limit int64) (body []byte, answered string, err error) {
	key := c.Key()
	body, answered, err = c.readBy(ctx, key, request{tail, tag, limit})
	if now := c.Key(); fleet.KindOf(err) == fleet.Unauthenticated && !now.Same(key) {
		body, answered, err = c.readBy(ctx, now, request{tail, tag, limit})
	}
	return body, answered, err
}

type request struct {
	tail, tag string
	limit     int64
}

func (c *Client) readBy(ctx context.Context, key identity.Key, r request) (body []byte, answered string, err error) {
	token, err := key.Sign(identity.RegionAudience, c.Now())
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := strings.TrimRight(c.API, "/") + "/api/internal/nodes/" + url.PathEscape(string(key.Node())) + "/" + r.tail
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, "", fleet.Errorf(fleet.Invalid, "invalid region address: want a URL")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if r.tag != "" {
		req.Header.Set("If-None-Match", r.tag)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, "", fleet.Errorf(fleet.Communication, "reach the region: %w", err).WithHint(hint.Region(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	switch {
	case resp.StatusCode == http.StatusNotModified && r.tag != "":
		return nil, r.tag, nil
	case resp.StatusCode != http.StatusOK:
		return nil, "", fleet.Errorf(kindOf(resp.StatusCode), "the region answered %d for %s", resp.StatusCode, r.tail)
	}
	plain, done, err := plainBody(resp)
	if err != nil {
		return nil, "", err
	}
	defer done()
	body, err = io.ReadAll(io.LimitReader(plain, r.limit+1))
	if err != nil {
		return nil, "", fleet.Errorf(fleet.Communication, "read the region's answer: %w", err)
	}
	if int64(len(body)) > r.limit {
		return nil, "", fleet.Errorf(fleet.TooLarge, "the region's answer for %s is larger than %d bytes", r.tail, r.limit)
	}
	return body, resp.Header.Get("ETag"), nil
}
