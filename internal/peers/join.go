package peers

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// joinRequest is what a new region sends: its record, with its address signed.
type joinRequest struct {
	Token  string             `json:"token"`
	Record fleet.MemberRecord `json:"record"`
}

// joinAnswer is what the admitting region says: the new region's record as admitted, its own, and those of all members.
type joinAnswer struct {
	You     fleet.MemberRecord   `json:"you"`
	Me      fleet.MemberRecord   `json:"me"`
	Members []fleet.MemberRecord `json:"members"`
}

// The steps of a join at which tests stop a server.
const (
	stepAdmitted = "region_admitted" // the admitting region has stored the new one, and has not answered
	stepAnswered = "region_answered" // the new region has the answer, and has not stored it
)

const (
	joinBody  = 16 << 10
	joinLimit = 20 * time.Second
)

// Join makes this region a member through another one. It may be repeated with the same token.
func (n *Network) Join(ctx context.Context, address, token string) (fleet.RegionName, error) {
	pin, secret, err := invitation(token)
	if err != nil {
		return "", err
	}
	if err := fleet.ValidatePeerAddress("/address", address); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	answer, err := n.askToJoin(ctx, address, pin, secret)
	if err != nil {
		return "", err
	}
	n.opt.Failpoint(stepAnswered)
	decisions, err := n.opt.Store.Joined(ctx, answer.You, answer.Me, answer.Members[:min(len(answer.Members), maxMembers)], n.signer())
	n.report("region:"+string(answer.Me.Name), decisions)
	if err == nil {
		n.opt.Log.Info("joined", "region", answer.Me.Name, "members", len(answer.Members))
	}
	return answer.Me.Name, err
}

func (n *Network) askToJoin(ctx context.Context, address string, pin ed25519.PublicKey, secret string) (joinAnswer, error) {
	var answer joinAnswer
	own, err := n.own(ctx)
	if err != nil {
		return answer, err
	}
	body, err := json.Marshal(joinRequest{Token: secret, Record: own})
	if err != nil {
		return answer, fleet.Errorf(fleet.Internal, "write the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+joinPath, bytes.NewReader(body))
	if err != nil {
		return answer, fleet.Errorf(fleet.Internal, "make the request: %w", err)
	}
	client := n.pinned(pin, n.opt.Dial)
	defer client.CloseIdleConnections()
	if err := call(client, req, &answer); err != nil {
		return answer, joinFailed(err)
	}
	if !answer.Me.Key.Equal(pin) || answer.Me.Validate() != nil || !answer.Me.OwnAddress() {
		return answer, fleet.Errorf(fleet.Communication, "the admitting region answered with a record that is not its own").At("/address")
	}
	return answer, nil
}

// joinFailed keeps the admitting region's words. Where it refuses, the invitation is wrong, not the caller of this
// region.
func joinFailed(err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != fleet.Unauthenticated && e.Kind != fleet.Denied {
		return err
	}
	return fleet.Errorf(fleet.Invalid, "%s", e.Message).At(e.Field).WithHint(e.Hint)
}

// serveJoin admits a region that shows an invitation, under the key of its connection.
func (n *Network) serveJoin(w http.ResponseWriter, r *http.Request, key ed25519.PublicKey) {
	in, err := readJoin(w, r)
	if err == nil && !in.Record.Key.Equal(key) {
		err = fleet.Errorf(fleet.Denied, "the record has another key than the connection").At("/record")
	}
	if err == nil {
		if err = in.Record.Validate(); err == nil && !in.Record.OwnAddress() {
			err = fleet.Errorf(fleet.Invalid, "the address is not signed by the region's key").At("/record")
		}
	}
	if err != nil {
		n.refuse(w, r, "?key:"+fingerprint(key), string(fleet.KindOf(err)), err)
		return
	}
	answer, err := n.admit(r.Context(), in)
	if err != nil {
		reason := string(fleet.KindOf(err))
		if reason == string(fleet.Conflict) {
			reason = decide.RuleOtherKey
			n.opt.Log.Error("alarm: a region asked to join with a name or key of another", "region", in.Record.Name,
				"key", fingerprint(key), "error", err)
		}
		n.refuse(w, r, "?region:"+string(in.Record.Name), reason, err)
		return
	}
	w.Header().Set("Connection", "close")
	writeJSON(w, answer, nil)
}

func readJoin(w http.ResponseWriter, r *http.Request) (in joinRequest, err error) {
	if r.Method != http.MethodPost {
		return in, fleet.Errorf(fleet.Invalid, "this path takes POST only")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, joinBody))
	if err != nil {
		return in, fleet.Errorf(fleet.TooLarge, "the request does not end within %d bytes", joinBody)
	}
	if json.Unmarshal(raw, &in) != nil {
		return in, fleet.Errorf(fleet.Invalid, "the request is not JSON")
	}
	return in, nil
}

func (n *Network) admit(ctx context.Context, in joinRequest) (joinAnswer, error) {
	hash := identity.HashToken(in.Token)
	if err := n.opt.Store.Admit(ctx, hash[:], in.Record, n.signer()); err != nil {
		return joinAnswer{}, err
	}
	n.opt.Failpoint(stepAdmitted)
	all, err := n.opt.Store.Members(ctx)
	answer := joinAnswer{Members: n.passedOn(all)}
	for _, m := range all {
		switch {
		case m.Self:
			answer.Me = m.MemberRecord
		case m.Name == in.Record.Name:
			answer.You = m.MemberRecord
		}
	}
	n.opt.Log.Info("admitted a region", "region", in.Record.Name, "key", fingerprint(in.Record.Key), "address", in.Record.Address)
	return answer, err
}

// writeJSON answers with a document or with a problem.
func writeJSON(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		serve.WriteProblem(w, serve.ProblemFor(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the peer is gone when this fails
}
