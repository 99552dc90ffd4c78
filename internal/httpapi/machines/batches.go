package machines

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// batch finds the batch that a request names and the node that its token was sealed to: one
// that is unknown or has ended is not_found whatever the token, a live one with another
// token is unauthenticated (N91).
func (s *Calls) batch(r *http.Request) (fleet.BatchID, fleet.NodeName, error) {
	id := chi.URLParam(r, "id")
	dead := fleet.Errorf(fleet.NotFound, "no batch is open under this id")
	if !fleet.ValidID(id) {
		s.fetchNo.WithLabelValues(refusedDead).Inc()
		return "", "", dead
	}
	tokens, err := s.Store.BatchTokens(r.Context(), fleet.BatchID(id))
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		s.fetchNo.WithLabelValues(refusedDead).Inc()
		return "", "", dead
	}
	if err != nil {
		return "", "", err
	}
	node, err := s.opens(r, tokens)
	serve.CallOf(r.Context()).Still = func(ctx context.Context) error {
		tokens, err := s.Store.BatchTokens(ctx, fleet.BatchID(id))
		if err == nil {
			_, err = s.opens(r, tokens)
		}
		return err
	}
	return fleet.BatchID(id), node, err
}

// batchItems lists the deliveries of a batch, as they are now (N98).
func (s *Calls) batchItems(w http.ResponseWriter, r *http.Request) error {
	id, node, err := s.batch(r)
	if err != nil {
		return err
	}
	items, err := s.Store.BatchItems(r.Context(), id, node)
	if err == nil {
		err = canonicalRuns(items)
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	return s.sendItems(w, r, items)
}

func (s *Calls) sendItems(w http.ResponseWriter, r *http.Request, items []fleet.BatchItem) error {
	out := s.newPieces(w, r)
	separator := `{"items":[`
	for i := range items {
		text, err := json.Marshal(items[i])
		if err == nil {
			_, err = out.Write(append([]byte(separator), text...))
		}
		if err != nil {
			return out.end(err)
		}
		separator = ","
	}
	if len(items) > 0 {
		separator = ""
	}
	_, err := out.Write([]byte(separator + "]}"))
	return out.end(err)
}

// canonicalRuns gives each run section the form that its hash is of: jsonb adds spaces. Equal
// ones, as a template gives, are made once.
func canonicalRuns(items []fleet.BatchItem) error {
	made := map[string][]byte{}
	for i, item := range items {
		if len(item.Run) == 0 {
			continue
		}
		text, known := made[string(item.Run)]
		if !known {
			var err error
			if text, err = canonicalRun(item.Run); err != nil {
				return err
			}
			made[string(item.Run)] = text
		}
		items[i].Run = text
	}
	return nil
}

type bodiesRequest struct {
	Hashes []fleet.Hash `json:"hashes"`
}

func (s *Calls) readHashes(r *http.Request) ([]fleet.Hash, error) {
	var in bodiesRequest
	if err := s.readWire(r, &in); err != nil {
		return nil, err
	}
	if len(in.Hashes) > fleet.MaxBatchItems {
		return nil, fleet.Errorf(fleet.Invalid, "%d bodies requested", len(in.Hashes)).At("/hashes").
			WithHint("request at most " + strconv.Itoa(fleet.MaxBatchItems))
	}
	seen := make(map[fleet.Hash]bool, len(in.Hashes))
	for i, h := range in.Hashes {
		at := "/hashes/" + strconv.Itoa(i)
		if err := fleet.ValidateHash(at, h); err != nil {
			return nil, err
		}
		if seen[h] {
			return nil, fleet.Errorf(fleet.Invalid, "duplicate body").At(at)
		}
		seen[h] = true
	}
	return in.Hashes, nil
}

// batchBodies streams those bodies of a batch that the node lacks, one after the other.
func (s *Calls) batchBodies(w http.ResponseWriter, r *http.Request) error {
	id, node, err := s.batch(r)
	if err != nil {
		return err
	}
	hashes, err := s.readHashes(r)
	if err != nil {
		return err
	}
	return s.sendBodies(w, r, func(emit func(fleet.Hash, []byte) error) error {
		return s.Store.BatchBodies(r.Context(), id, node, hashes, emit)
	})
}

// ticketBodies is batchBodies for a comparison: bodies of the tickets that the node holds.
func (s *Calls) ticketBodies(w http.ResponseWriter, r *http.Request) error {
	pass, err := s.pass(r)
	if err != nil {
		return err
	}
	hashes, err := s.readHashes(r)
	if err != nil {
		return err
	}
	return s.sendBodies(w, r, func(emit func(fleet.Hash, []byte) error) error {
		return s.Store.TicketBodies(r.Context(), pass.Site, pass.Node, hashes, emit)
	})
}

type resultsRequest struct {
	Results []fleet.BatchResult `json:"results"`
}

// batchResults takes what a node made of the items of a batch (X27).
func (s *Calls) batchResults(w http.ResponseWriter, r *http.Request) error {
	id, node, err := s.batch(r)
	if err != nil {
		return err
	}
	var in resultsRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if err := checkResults(in.Results); err != nil {
		return err
	}
	if len(in.Results) > 0 {
		if err := s.Store.RecordBatch(r.Context(), id, node, in.Results); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxResultText bounds what a node says of one item.
const maxResultText = 1024

// checkResults refuses what cannot be, and cuts what is too long to be kept.
func checkResults(results []fleet.BatchResult) error {
	if len(results) > fleet.MaxBatchItems {
		return fleet.Errorf(fleet.Invalid, "%d results given", len(results)).At("/results").
			WithHint("send at most " + strconv.Itoa(fleet.MaxBatchItems))
	}
	seen := make(map[string]bool, len(results))
	for i := range results {
		at := "/results/" + strconv.Itoa(i)
		if err := checkResult(at, results[i]); err != nil {
			return err
		}
		if seen[results[i].DeploymentID] {
			return fleet.Errorf(fleet.Invalid, "duplicate delivery").At(at + "/deploymentId")
		}
		seen[results[i].DeploymentID] = true
		results[i].Reason = fleet.Kind(plainText(string(results[i].Reason), maxWord))
		results[i].Message = plainText(results[i].Message, maxResultText)
	}
	return nil
}

func checkResult(at string, r fleet.BatchResult) error {
	if !fleet.ValidID(r.DeploymentID) {
		return fleet.Errorf(fleet.Invalid, "invalid delivery id: want 32 hex digits").At(at + "/deploymentId")
	}
	if err := fleet.ValidateName(at+"/instance", string(r.Instance)); err != nil {
		return err
	}
	held := r.Held
	if least := min(held.Era, held.Version.Revision, held.HighWater.Era, held.HighWater.Revision, held.Content.Size); least < 0 {
		return fleet.Errorf(fleet.Invalid, "versions and sizes must not be negative").At(at + "/held")
	}
	for _, h := range []fleet.Hash{held.Content.Hash, held.RunHash} {
		if err := fleet.ValidateHash(at+"/held", cmp.Or(h, noHash)); err != nil {
			return err
		}
	}
	if r.Fetched < 0 {
		return fleet.Errorf(fleet.Invalid, "fetched must not be negative").At(at + "/fetched")
	}
	return nil
}

// noHash has the form of a hash, for where there is none.
var noHash = fleet.Hash(strings.Repeat("0", 64))

// plainText is text that can be kept: valid, without NUL, and not longer than so many bytes.
func plainText(s string, most int) string {
	s = strings.ReplaceAll(s[:min(len(s), most)], "\x00", "")
	return strings.ToValidUTF8(s, "")
}
