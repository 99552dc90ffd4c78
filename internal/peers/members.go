package peers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	store "github.com/holdfast-io/holdfast/internal/postgres/peers"
)

const (
	membersPath = "/peer/v1/members"
	joinPath    = "/peer/v1/join"

	// askLimit is for a whole call, and maxAnswer for what is read of its answer.
	askLimit   = 5 * time.Second
	maxAnswer  = 1 << 20
	maxMembers = 500
	maxProblem = 300
	maxAlarms  = 1000
)

// membersAnswer is the answer of GET /peer/v1/members.
type membersAnswer struct {
	Members []fleet.MemberRecord `json:"members"`
	// About is the region that answers.
	About *fleet.RegionAbout `json:"about,omitempty"`
}

func (n *Network) serveMembers(w http.ResponseWriter, r *http.Request) {
	all, err := n.opt.Store.Members(r.Context())
	about, errAbout := n.opt.About(r.Context())
	writeJSON(w, membersAnswer{n.passedOn(all), &about}, errors.Join(err, errAbout))
}

// passedOn are the records of all members. Where the region that admitted one is no member any more, this region
// vouches for it: others may not know the old one.
func (n *Network) passedOn(all []store.Member) []fleet.MemberRecord {
	member := map[fleet.RegionName]bool{}
	for _, m := range all {
		member[m.Name] = !m.Removed
	}
	out := []fleet.MemberRecord{}
	for _, m := range all {
		switch {
		case m.Removed:
		case member[m.AdmittedBy]:
			out = append(out, m.MemberRecord)
		default:
			out = append(out, m.SignAdmission(n.opt.Identity.Name, n.opt.Identity.Key))
		}
	}
	return out
}

// Run asks each enabled peer for its members until the context ends, and ends calls of peers that were disabled. So
// members that hear of each other from any peer complete the mesh.
func (n *Network) Run(ctx context.Context) error {
	defer n.Close()
	for {
		n.round(ctx)
		if err := pause.For(ctx, n.opt.Every/2+rand.N(n.opt.Every+1)); err != nil { //nolint:gosec // jitter is no secret
			return err
		}
	}
}

func (n *Network) round(ctx context.Context) {
	peers, err := n.Peers(ctx)
	if err != nil {
		n.opt.Log.WarnContext(ctx, "list the peers; retrying", "error", err)
		return
	}
	n.cut(peers)
	var all sync.WaitGroup
	for _, p := range peers {
		all.Go(func() {
			err := n.ask(ctx, p)
			if ctx.Err() != nil {
				return
			}
			n.calls.WithLabelValues(string(p.Name), outcome(err)).Inc()
			if err := n.opt.Store.SawPeer(ctx, p.Name, problemOf(err)); err != nil {
				n.opt.Log.WarnContext(ctx, "record a call to a peer", "peer", p.Name, "error", err)
			}
		})
	}
	all.Wait()
}

func outcome(err error) string {
	if err != nil {
		return string(fleet.KindOf(err))
	}
	return "ok"
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
	return strings.ReplaceAll(text, "\x00", "?") // Postgres stores none
}

// ask takes the records of one peer.
func (n *Network) ask(ctx context.Context, p Peer) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := n.request(ctx, http.MethodGet, p.URL(membersPath), nil)
	if err != nil {
		return err
	}
	var answer membersAnswer
	if err := call(p.Client, req, &answer); err != nil {
		return err
	}
	answer.Members = answer.Members[:min(len(answer.Members), maxMembers)]
	decisions, err := n.opt.Store.TakeMembers(ctx, answer.Members)
	n.report("region:"+string(p.Name), decisions)
	if err != nil {
		return err
	}
	if answer.About != nil { // an older version tells nothing
		if err := answer.About.Validate(); err != nil {
			return err
		}
		if err := n.opt.Store.TellsOf(ctx, p.Name, *answer.About); err != nil {
			return err
		}
	}
	return n.outbid(ctx, answer.Members)
}

// outbid raises the number of this region's address where a peer knows a newer one: a restored database has forgotten it.
func (n *Network) outbid(ctx context.Context, records []fleet.MemberRecord) error {
	for _, r := range records {
		if !r.Key.Equal(n.opt.Identity.Public()) || !r.OwnAddress() {
			continue
		}
		return n.opt.Store.Announce(ctx, func(stored fleet.MemberRecord) fleet.MemberRecord {
			if r.AddressNumber < stored.AddressNumber || r.Address == stored.Address {
				return stored
			}
			stored.AddressNumber = r.AddressNumber + 1
			return stored.SignAddress(n.opt.Identity.Key)
		})
	}
	return nil
}

// request is one that carries this region's own record.
func (n *Network) request(ctx context.Context, method, url string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "make the request: %w", err)
	}
	own, err := n.own(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "write the region's record: %w", err)
	}
	req.Header.Set(recordHeader, base64.StdEncoding.EncodeToString(raw))
	return req, nil
}

// own is this region's record.
func (n *Network) own(ctx context.Context) (fleet.MemberRecord, error) {
	all, err := n.opt.Store.Members(ctx)
	for _, m := range all {
		if m.Self {
			return m.MemberRecord, err
		}
	}
	if err == nil {
		err = fleet.Errorf(fleet.Internal, "the region has no record of itself")
	}
	return fleet.MemberRecord{}, err
}

// call sends a request and reads a bounded answer.
func call(client *http.Client, req *http.Request, into any) error {
	res, err := client.Do(req)
	if err != nil {
		return unreached("the peer", req, err).WithHint("is its --peers-url reachable from here?")
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return api.ReadRefusal(res)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fleet.Errorf(fleet.Unavailable, "read the answer of %s: %w", req.URL.Host, err)
	case len(raw) > maxAnswer:
		return fleet.Errorf(fleet.Communication, "the answer of %s exceeds %d bytes", req.URL.Host, maxAnswer)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fleet.Errorf(fleet.Communication, "read the answer of %s: %w", req.URL.Host, err)
	}
	return nil
}

// report raises an alarm for each refused record, once per server and record, and records all of them.
func (n *Network) report(from string, all []decide.MemberDecision) {
	for _, d := range all {
		if d.Do != decide.MemberRefuse {
			continue
		}
		what := "record of region " + string(d.Record.Name) + " with key " + fingerprint(d.Record.Key)
		n.opt.Refuse(audit.Refusal{Door: Door, Identity: from, Reason: d.Rule, What: what})
		if n.first(from + " " + d.Rule + " " + what) {
			n.opt.Log.Error("alarm: rejected the record of a region; another key may claim its name", "region", d.Record.Name,
				"key", fingerprint(d.Record.Key), "from", from, "reason", d.Rule)
		}
	}
}

func (n *Network) first(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alarms[what] || len(n.alarms) >= maxAlarms {
		return false
	}
	n.alarms[what] = true
	return true
}
