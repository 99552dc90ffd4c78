package peers

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	store "github.com/holdfast-io/holdfast/internal/postgres/peers"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// The reasons for which a caller is refused before any handler.
const (
	reasonUnknown  = "unknown_key"
	reasonDisabled = "disabled"
	reasonRemoved  = "removed"
)

// recordHeader carries the caller's own record, so that a member that has not heard of the caller yet can check it.
const recordHeader = "Holdfast-Region"

type callerKey struct{}

// CallerOf is the peer that sent a request.
func CallerOf(ctx context.Context) fleet.RegionName {
	name, _ := ctx.Value(callerKey{}).(fleet.RegionName)
	return name
}

// running is a call that a peer makes right now.
type running struct {
	peer   fleet.RegionName
	cancel context.CancelFunc
}

// ServeHTTP finds out which peer calls, and refuses whoever is not an enabled one. Only a join needs no membership.
func (n *Network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r.TLS)
	if err != nil {
		n.refuse(w, r, "?", reasonUnknown, err)
		return
	}
	if r.URL.Path == joinPath {
		n.serveJoin(w, r, key)
		return
	}
	m, err := n.caller(r, key)
	if err != nil {
		serve.WriteProblem(w, serve.ProblemFor(err))
		return
	}
	switch self := n.opt.Identity.Name; {
	case m == nil:
		n.refuse(w, r, "?key:"+fingerprint(key), reasonUnknown,
			fleet.Errorf(fleet.Unauthenticated, "unknown_key: region %s does not know key %s", self, fingerprint(key)).
				WithHint("join with an invitation: holdfast region join"))
	case m.Removed:
		n.refuse(w, r, "region:"+string(m.Name), reasonRemoved,
			fleet.Errorf(fleet.Denied, "removed: region %s has removed region %s", self, m.Name).WithHint("join again with a new invitation"))
	case m.Disabled:
		n.refuse(w, r, "region:"+string(m.Name), reasonDisabled,
			fleet.Errorf(fleet.Denied, "disabled: region %s has disabled region %s", self, m.Name).
				WithHint("an administrator there can allow it: holdfast region enable "+string(m.Name)))
	default:
		strangers.Of(r.Context()).Admit()
		is, err := n.opt.Store.Era(r.Context())
		if err != nil {
			serve.WriteProblem(w, serve.ProblemFor(err))
			return
		}
		w.Header().Set(eraHeader, fmt.Sprintf("%d %s", is.Number, is.ID))
		n.serveKnown(w, r, m.Name)
	}
}

func (n *Network) serveKnown(w http.ResponseWriter, r *http.Request, peer fleet.RegionName) {
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, peer))
	defer cancel()
	call := &running{peer, cancel}
	n.mu.Lock()
	n.running[call] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.running, call)
		n.mu.Unlock()
	}()
	n.mux.ServeHTTP(w, r.WithContext(ctx))
}

// cut ends the calls of and to peers that are not enabled any more.
func (n *Network) cut(enabled []Peer) {
	may := map[fleet.RegionName]bool{}
	for _, p := range enabled {
		may[p.Name] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for call := range n.running {
		if !may[call.peer] {
			call.cancel()
		}
	}
	for name, l := range n.links {
		if !may[name] {
			l.client.CloseIdleConnections()
			l.conns.cut()
			delete(n.links, name)
		}
	}
}

// caller finds the member with a key. The record that it brings is checked first, and stored if it is newer.
func (n *Network) caller(r *http.Request, key ed25519.PublicKey) (*store.Member, error) {
	all, err := n.opt.Store.Members(r.Context())
	if err != nil {
		return nil, err
	}
	m := withKey(all, key)
	own, brought := recordOf(r)
	if !brought || !own.Key.Equal(key) {
		return m, nil
	}
	known := make([]fleet.RegionMember, len(all))
	for i, m := range all {
		known[i] = m.RegionMember
	}
	decisions := decide.Members(known, []fleet.MemberRecord{own})
	n.report("?key:"+fingerprint(key), decisions)
	if decisions[0].Do != decide.MemberTake {
		return m, nil
	}
	if _, err := n.opt.Store.TakeMembers(r.Context(), []fleet.MemberRecord{own}); err != nil {
		return nil, err
	}
	all, err = n.opt.Store.Members(r.Context())
	return withKey(all, key), err
}

func withKey(all []store.Member, key ed25519.PublicKey) *store.Member {
	for i, m := range all {
		if m.Key.Equal(key) && !m.Self {
			return &all[i]
		}
	}
	return nil
}

// recordOf reads the record that a caller brings.
func recordOf(r *http.Request) (fleet.MemberRecord, bool) {
	var own fleet.MemberRecord
	raw, err := base64.StdEncoding.DecodeString(r.Header.Get(recordHeader))
	return own, err == nil && len(raw) > 0 && json.Unmarshal(raw, &own) == nil
}

// refuse answers a caller that may do nothing, and closes its connection.
func (n *Network) refuse(w http.ResponseWriter, r *http.Request, who, reason string, err error) {
	n.opt.Refuse(audit.Refusal{Door: Door, Identity: who, Reason: reason, What: r.Method + " " + r.URL.Path})
	w.Header().Set("Connection", "close")
	serve.WriteProblem(w, serve.ProblemFor(err))
}
