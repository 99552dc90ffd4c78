package machines

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// What a caller without a token may cost (docs/limits.md).
const (
	// maxEnrolment is many times what a join token, two names and two keys take.
	maxEnrolment  = 4 << 10
	enrolmentTime = 10 * time.Second
	maxEnrolments = 64
)

type enrolRequest struct {
	JoinToken  string         `json:"joinToken"`
	Node       fleet.NodeName `json:"node"`
	Site       fleet.SiteName `json:"site"`
	SigningKey string         `json:"signingKey"`
	SealingKey string         `json:"sealingKey"`
}

// enrol takes the public keys of a node that holds a join token.
func (s *Calls) enrol(w http.ResponseWriter, r *http.Request) error {
	var in enrolRequest
	raw, err := s.readEnrolment(w, r)
	if err != nil {
		return err
	}
	if err := decode.Refuse(raw, json.Unmarshal(raw, &in)); err != nil {
		return err
	}
	if err := fleet.ValidateName("/node", string(in.Node)); err != nil {
		return err
	}
	if err := fleet.ValidateName("/site", string(in.Site)); err != nil {
		return err
	}
	signing, err := identity.DecodePublic("/signingKey", in.SigningKey)
	if err != nil {
		return err
	}
	sealing, err := identity.DecodePublic("/sealingKey", in.SealingKey)
	if err != nil {
		return err
	}
	hash := identity.HashToken(in.JoinToken)
	welcome, err := s.Store.Enrol(r.Context(), nodes.Enrolment{
		JoinTokenHash: hash[:], Node: in.Node, Site: in.Site, SigningKey: signing[:], SealingKey: sealing[:],
	})
	if err != nil {
		return err
	}
	s.Log.Info("node enrolled", "node", in.Node, "site", in.Site)
	return serve.AnswerJSON(w, http.StatusOK, welcome)
}

// readEnrolment reads the body of a caller that has shown nothing yet: all of it is here in time, or
// it is refused. When too many send one at once, the one that began first is cut.
func (s *Calls) readEnrolment(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxEnrolment {
		return nil, enrolmentTooLarge()
	}
	control := http.NewResponseController(w)
	var mu sync.Mutex
	over := false
	place := s.Enrolling.Enter(func() {
		mu.Lock()
		defer mu.Unlock()
		if !over { // a controller is not used after its request
			_ = control.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer func() {
		place.Leave()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxEnrolment+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fleet.Errorf(fleet.Unavailable, "timed out reading the body; the limit is %s", enrolmentTime).WithHint("retry")
	case err != nil:
		return nil, fleet.Errorf(fleet.Invalid, "the body ended after %d bytes", len(raw)).WithHint("retry")
	case len(raw) > maxEnrolment:
		return nil, enrolmentTooLarge()
	}
	return raw, nil
}

func enrolmentTooLarge() error {
	return fleet.Errorf(fleet.TooLarge, "the enrolment exceeds %d bytes", maxEnrolment).
		WithHint("send the join token, the names and the public keys of one node, as holdfast node does")
}
