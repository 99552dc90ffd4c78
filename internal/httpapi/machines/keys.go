package machines

import (
	"crypto/subtle"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type keyRequest struct {
	SigningKey string `json:"signingKey"`
	SealingKey string `json:"sealingKey"`
}

// keyAnswer says whether the key that was offered is the node's only one: then the request was
// signed by it.
type keyAnswer struct {
	Confirmed bool `json:"confirmed"`
}

// nodeKey takes a node's new public halves. Signed by the old key it is an offer; signed by the
// new one it is the use that voids the old, and the answer confirms it. Both may be repeated.
func (s *Calls) nodeKey(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in keyRequest
	if err := s.readWire(r, &in); err != nil {
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
	if subtle.ConstantTimeCompare(node.SigningKey, signing[:]) == 1 {
		return serve.AnswerJSON(w, http.StatusOK, keyAnswer{Confirmed: true})
	}
	err = s.Store.OfferKey(r.Context(), nodes.KeyOffer{
		Node: node.Name, Signer: node.SigningKey, Signing: signing[:], Sealing: sealing[:],
	})
	if fleet.KindOf(err) == fleet.Conflict {
		s.Refused(audit.Refusal{Door: serve.Door, Identity: "node:" + string(node.Name), Reason: "other_key_offered", What: r.Method + " " + r.URL.Path})
	}
	if err != nil {
		return err
	}
	s.Log.Info("node offered a new key", "node", node.Name)
	return serve.AnswerJSON(w, http.StatusOK, keyAnswer{})
}
