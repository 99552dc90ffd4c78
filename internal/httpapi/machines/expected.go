package machines

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// pass finds the comparison whose token a request carries (N86: only an authenticated set
// is acted upon). The token opens the site that it was made for and no other.
func (s *Calls) pass(r *http.Request) (reconcile.Pass, error) {
	token, err := serve.Bearer(r)
	if err != nil {
		return reconcile.Pass{}, err
	}
	hash := identity.HashToken(token)
	pass, err := s.Store.ReconcileOf(r.Context(), hash[:], s.PendingTTL)
	if err == nil && string(pass.Site) != chi.URLParam(r, "site") {
		err = fleet.Errorf(fleet.Unauthenticated, "the token belongs to another site")
	}
	if err == nil {
		serve.CallOf(r.Context()).Still = func(ctx context.Context) error {
			_, err := s.Store.ReconcileOf(ctx, hash[:], s.PendingTTL)
			return err
		}
		strangers.Of(r.Context()).Admit()
	}
	return pass, err
}

// expectedSet lists what the nodes of a site should hold (N33, N79), whole, with its number
// of lines and its version in headers. It is 304 for one that is clean at this version.
func (s *Calls) expectedSet(w http.ResponseWriter, r *http.Request) error {
	pass, err := s.pass(r)
	if err != nil {
		return err
	}
	version, err := s.Store.SetVersion(r.Context(), pass.Site)
	if err != nil {
		return err
	}
	if holds(r.Header.Get("If-None-Match"), serve.Quoted(version.String())) {
		setHeaders(w.Header(), version)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	set, err := s.Store.ExpectedSet(r.Context(), pass.Site)
	if err != nil {
		return err
	}
	text, err := json.Marshal(set.Instances)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the expected set: %w", err)
	}
	h := w.Header()
	setHeaders(h, set.Version)
	h.Set(fleet.HeaderSetCount, strconv.Itoa(set.Count))
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	coding := codingFor(r, fleet.Content{Kind: fleet.ContentJSON, Size: int64(len(text))})
	if coding == codingIdentity {
		_, _ = w.Write(text) // the node is gone when this fails
		return nil
	}
	h.Set("Content-Encoding", coding)
	if compressTo(w, bytes.NewReader(text), coding) != nil {
		serve.Abort()
	}
	return nil
}

func setHeaders(h http.Header, v fleet.SetVersion) {
	h.Set("ETag", "W/"+serve.Quoted(v.String()))
	h.Set(fleet.HeaderSetVersion, v.String())
}

type ticketsRequest struct {
	Instances []fleet.InstanceName `json:"instances"`
}

type ticketsAnswer struct {
	Commands []fleet.RefreshDeploymentCommand `json:"commands"`
}

// tickets lets a node fetch what it lacks, each with a separate token
// that is sealed to it (N84, N104). A name that has moved on has none.
func (s *Calls) tickets(w http.ResponseWriter, r *http.Request) error {
	pass, err := s.pass(r)
	if err != nil {
		return err
	}
	var in ticketsRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if err := serve.CheckNames(len(in.Instances), func(i int) fleet.InstanceName { return in.Instances[i] }); err != nil {
		return err
	}
	commands, err := s.makeTickets(r.Context(), pass, in.Instances)
	if err != nil {
		return err
	}
	return serve.AnswerJSON(w, http.StatusOK, ticketsAnswer{commands})
}

func (s *Calls) makeTickets(ctx context.Context, pass reconcile.Pass, names []fleet.InstanceName) ([]fleet.RefreshDeploymentCommand, error) {
	ask := reconcile.TicketRequest{Pass: pass, Names: names, Life: s.PendingTTL}
	var tokens []string
	for range names {
		token, hash, err := identity.NewToken(ticketTokenBytes)
		if err != nil {
			return nil, err
		}
		tokens, ask.Tokens = append(tokens, token), append(ask.Tokens, hash[:])
	}
	made, err := s.Store.MakeTickets(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i := range made.Commands {
		if len(made.SealingKey) != sealingKeySize {
			return nil, fleet.Errorf(fleet.Unavailable, "node %s has no sealing key", pass.Node)
		}
		if made.Commands[i].FetchToken, err = identity.Seal((*[sealingKeySize]byte)(made.SealingKey), tokens[made.Order[i]]); err != nil {
			return nil, err
		}
	}
	return made.Commands, nil
}

const (
	ticketTokenBytes = 32
	sealingKeySize   = 32
)

type absentRequest struct {
	Instances []fleet.Extra `json:"instances"`
}

// confirmAbsent answers by name what becomes of what a node holds and the set does not list
// (N57, N86, X3).
func (s *Calls) confirmAbsent(w http.ResponseWriter, r *http.Request) error {
	pass, err := s.pass(r)
	if err != nil {
		return err
	}
	var in absentRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if err := checkExtras(in.Instances); err != nil {
		return err
	}
	answer, err := s.Store.ConfirmAbsent(r.Context(), pass, in.Instances)
	if err != nil {
		return err
	}
	if n := len(answer.Drop); n > 0 {
		s.Log.Info("orphans dropped", "node", pass.Node, "site", pass.Site, "dropped", n)
	}
	return serve.AnswerJSON(w, http.StatusOK, answer)
}

func checkExtras(all []fleet.Extra) error {
	if err := serve.CheckNames(len(all), func(i int) fleet.InstanceName { return all[i].Instance }); err != nil {
		return err
	}
	for i, e := range all {
		if e.Version.Era < 0 || e.Version.Revision < 0 {
			return fleet.Errorf(fleet.Invalid, "versions must not be negative").At("/instances/" + strconv.Itoa(i) + "/version")
		}
		if e.Hash != "" {
			if err := fleet.ValidateHash("/instances/"+strconv.Itoa(i)+"/revisionHash", e.Hash); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconciled takes what came of a comparison (X27).
func (s *Calls) reconciled(w http.ResponseWriter, r *http.Request) error {
	pass, err := s.pass(r)
	if err != nil {
		return err
	}
	var in fleet.ReconcileReport
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if len(in.Differs) > fleet.MaxDiffers || len(in.Refused) > maxWord {
		return fleet.Errorf(fleet.Invalid, "too many instances in a report; the limit is %d", fleet.MaxDiffers).At("/differs")
	}
	for i, d := range in.Differs {
		if err := fleet.ValidateName("/differs/"+strconv.Itoa(i)+"/instance", string(d.Instance)); err != nil {
			return err
		}
		in.Differs[i].Why = strings.ToValidUTF8(d.Why[:min(len(d.Why), maxWord)], "")
	}
	if err := s.Store.ReportReconcile(r.Context(), pass, in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxWord bounds a reason that a node gives.
const maxWord = 200
