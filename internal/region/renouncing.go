package region

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/peers"
)

// renouncePath is where the owner of a policy holder asks the region that it fenced itself for not to claim it.
const renouncePath = "/peer/v1/renounce"

// maxRenounce is more than such a request has, in bytes.
const maxRenounce = 4 << 10

// policies are the steps of the entities of policy holders.
func (s *server) policies(doors *tellers) *activities.Policies {
	return &activities.Policies{
		Store: s.store, HandOvers: s.store, Peers: peerStreams{s.peers}, Doors: doors, Build: s.cfg.Build, Now: time.Now,
	}
}

// Renounce asks a peer not to claim a holder. It is illegal_state when the peer has claimed it.
func (p peerStreams) Renounce(ctx context.Context, to fleet.RegionName, r fleet.Renounce) error {
	peer, err := p.find(ctx, to)
	if err != nil {
		return err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "ask region %s: %w", to, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, peer.URL(renouncePath), bytes.NewReader(body))
	if err != nil {
		return fleet.Errorf(fleet.Internal, "ask region %s: %w", to, err)
	}
	resp, err := peer.Client.Do(req)
	if err != nil {
		return fleet.Errorf(fleet.Unavailable, "reach region %s: %w", to, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return api.ReadRefusal(resp)
}

func (s *server) serveRenounce(w http.ResponseWriter, r *http.Request) {
	var in fleet.Renounce
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRenounce))
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		serve.WriteProblem(w, serve.ProblemFor(fleet.Errorf(fleet.Invalid, "read the request: %w", err)))
		return
	}
	if err = in.Validate(); err == nil {
		err = s.store.Renounce(r.Context(), peers.CallerOf(r.Context()), in)
	}
	if err != nil {
		serve.WriteProblem(w, serve.ProblemFor(err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
