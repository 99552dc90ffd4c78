package region

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/peers"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// watchPath is where peers get what this region shares with them.
const watchPath = "/peer/v1/watch"

const (
	// followTurn is how long one activity follows a peer.
	followTurn = 10 * time.Minute
	followBeat = 2 * time.Second
	// followSilence is how long a stream may say nothing: three signs of life.
	followSilence = 15 * time.Second
	// followRetry is the longest pause between two attempts to reach a peer (M48).
	followRetry = 15 * time.Second
	// followLost is the time without a sign of life after which the entity of a peer is woken.
	followLost = 15 * time.Second
)

// share serves what this region owns to its peers, as soon as it is committed.
func (s *server) share() {
	s.commits = postgres.NewCommits(s.store.Store, s.id)
	s.soon = make(chan string, relayAtOnce)
	s.store.OnCommit(func(outbox []string) {
		s.handler.Committed()
		s.commits.Note()
		s.hurry(outbox)
	})
	if s.peers == nil {
		return
	}
	s.peers.Handle("POST "+renouncePath, http.HandlerFunc(s.serveRenounce))
	s.peers.Handle("GET "+watchPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if err := s.handler.WatchAs(r.Context(), peers.CallerOf(r.Context()), w, q.Get("after"), q.Get("since")); err != nil {
			serve.WriteProblem(w, serve.ProblemFor(err))
		}
	}))
	owner := &compare.Owner{Store: s.store, Caller: peers.CallerOf, View: httpapi.ViewOf, Now: time.Now}
	owner.Mount(s.peers.Handle)
	shareParts(s.handler, s.peers, func(r *http.Request) fleet.RegionName { return peers.CallerOf(r.Context()) })
}

// hurry has the entities woken soon that a peer's change, a policy or a comparison gave something to do: they have no request
// that wakes them. The relay wakes those for which there is no room.
func (s *server) hurry(outbox []string) {
	for _, subject := range outbox {
		if kind, _, _ := fleet.ParseSubject(subject); kind != fleet.EntityPolicy && kind != fleet.EntitySync {
			continue
		}
		select {
		case s.soon <- subject:
		default:
		}
	}
}

func (s *server) wakeSoon(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case subject := <-s.soon:
			if err := s.again.Wake(ctx, subject); err != nil {
				s.log.Info("an entity was not woken; the relay repeats it", "subject", subject, "err", err)
			}
		}
	}
}

// tellCommits has the other servers of the region read what this one committed.
func (s *server) tellCommits(ctx context.Context) error {
	return s.every(ctx, time.Second, "tell of commits", s.commits.Tell)
}

// hearCommits reads what the others committed; it reconnects when the connection breaks.
func (s *server) hearCommits(ctx context.Context) error {
	return s.every(ctx, time.Second, "listen for commits", func(ctx context.Context) error { return s.commits.Listen(ctx, s.handler.Committed) })
}

func (s *server) follower() *watch.Follower {
	streams := peerStreams{s.peers}
	return &watch.Follower{
		Store: s.store, Peers: streams, Waiting: s.store, Parts: peerParts{streams.send}, MaxBody: maxCopiedBody, Log: s.log,
		Now: time.Now, Rival: s.metrics.rival,
		Turn: followTurn, Beat: followBeat, Silence: followSilence, Retry: followRetry,
	}
}

func (s *server) comparer() *compare.Comparer {
	return &compare.Comparer{Store: s.store, Peers: peerStreams{s.peers}, Rival: s.metrics.rival}
}

// peerStreams opens the streams of peers.
type peerStreams struct{ network *peers.Network }

// Allowed returns not_found for a region that is not a peer, or is disabled.
func (p peerStreams) Allowed(ctx context.Context, peer fleet.RegionName) error {
	_, err := p.find(ctx, peer)
	return err
}

// Watch opens the stream of a peer at a place.
func (p peerStreams) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	query := url.Values{"after": {at.Position}, "since": {at.Began}}
	return p.call(ctx, peer, http.MethodGet, watchPath+"?"+query.Encode(), nil)
}

// Post sends a question to a peer.
func (p peerStreams) Post(ctx context.Context, peer fleet.RegionName, path string, question []byte) (io.ReadCloser, error) {
	return p.call(ctx, peer, http.MethodPost, path, question)
}

func (p peerStreams) call(ctx context.Context, peer fleet.RegionName, method, path string, body []byte) (io.ReadCloser, error) {
	to, err := p.find(ctx, peer)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, to.URL(path), bytes.NewReader(body))
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "ask region %s: %w", peer, err)
	}
	resp, err := to.Client.Do(req)
	if err != nil {
		return nil, peers.Unreached(peer, req, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // what it says is in its own log
		return nil, fleet.Errorf(fleet.Unavailable, "region %s answers %s", peer, resp.Status)
	}
	return resp.Body, nil
}

func (p peerStreams) find(ctx context.Context, peer fleet.RegionName) (peers.Peer, error) {
	if p.network != nil {
		all, err := p.network.Peers(ctx)
		if err != nil {
			return peers.Peer{}, err
		}
		for _, one := range all {
			if one.Name == peer {
				return one, nil
			}
		}
	}
	return peers.Peer{}, fleet.Errorf(fleet.NotFound, "region %s is not a peer, or is disabled", peer)
}

// followPeers wakes the entity of each peer that no run follows: it is new or enabled again, or its run, its build or
// Temporal's data was lost.
func (s *server) followPeers(ctx context.Context) error {
	if s.peers == nil || !s.cfg.Roles.Has(RoleWorker) {
		return nil
	}
	compared := time.Duration(0) // at the start, each peer is compared with
	return s.every(ctx, followLost/3, "follow the peers", func(ctx context.Context) error {
		all, err := s.peers.Peers(ctx)
		if err != nil {
			return err
		}
		streams, err := s.store.Streams(ctx)
		if err != nil {
			return err
		}
		seen := map[fleet.RegionName]time.Duration{}
		for _, st := range streams {
			seen[st.Peer] = st.Seen
		}
		names := make([]fleet.RegionName, len(all))
		for i, p := range all {
			names[i] = p.Name
		}
		if err := errors.Join(s.store.LookRecovering(ctx), s.store.WantSyncs(ctx, compared)); err != nil {
			return err
		}
		compared = s.cfg.Timing.Compare
		for _, peer := range decide.Unfollowed(names, seen, followLost) {
			if err := s.again.Wake(ctx, fleet.RegionSubject(peer)); err != nil {
				return err
			}
		}
		return nil
	})
}

// repairSyncing finds what this region owns and peers have, or have not, against its policy: at the start, and as often as
// regions compare.
func (s *server) repairSyncing(ctx context.Context) error {
	if s.peers == nil || !s.cfg.Roles.Has(RoleWorker) {
		return nil
	}
	var last time.Time
	return s.every(ctx, min(time.Minute, s.cfg.Timing.Compare), "repair what regions have", func(ctx context.Context) error {
		if !last.IsZero() && time.Since(last) < s.cfg.Timing.Compare {
			return nil
		}
		repaired, err := s.store.RepairSyncing(ctx)
		if repaired > 0 {
			s.log.WarnContext(ctx, "objects had another syncing than their policies say; repaired", "objects", repaired)
		}
		if err == nil {
			last = time.Now()
		}
		return err
	})
}
