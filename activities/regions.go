package activities

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// copyStore keeps the copies of what peers own.
type copyStore interface {
	ClaimStream(ctx context.Context, c copies.Claim) (position string, err error)
	// SeeStream is stale for a claim that another has replaced.
	SeeStream(ctx context.Context, c copies.Claim) error
	Apply(ctx context.Context, s copies.Set) (copies.Applied, error)
}

// peers are the other regions.
type peers interface {
	// Watch opens the stream of a peer after a position. It is not_found for a region that is no peer, or a disabled one.
	Watch(ctx context.Context, peer fleet.RegionName, after string) (io.ReadCloser, error)
}

// Regions are the steps of what regions share.
type Regions struct {
	Store copyStore
	Peers peers
	// Turn is how long one activity follows a peer, Silence how long a stream may say nothing.
	Turn, Silence time.Duration
	// Retry is the longest pause between two attempts to reach a peer.
	Retry time.Duration
}

// FollowPeer names a peer.
type FollowPeer struct {
	Peer fleet.RegionName `json:"peer"`
}

// Followed counts what one turn did with a peer's changes.
type Followed struct {
	Written int `json:"written"`
	Ended   int `json:"ended"`
	Refused int `json:"refused,omitempty"`
	Streams int `json:"streams"`          // how often the stream was opened
	Left    bool `json:"left,omitempty"`   // it is no peer any more, or is disabled
	Reason  string `json:"reason,omitempty"` // why the last stream ended
}

// FollowPeer applies what a peer changes, for one turn. A stream that breaks is opened again behind what was applied.
func (r *Regions) FollowPeer(ctx context.Context, in FollowPeer) (Followed, error) {
	info := activity.GetInfo(ctx)
	f := &following{
		Regions: r, claim: copies.Claim{Peer: in.Peer, Run: info.WorkflowExecution.RunID, Attempt: info.Attempt},
	}
	turn, cancel := context.WithTimeout(ctx, r.Turn)
	defer cancel()
	for wait := firstRetry; ; wait = min(2*wait, r.Retry) {
		took, err := f.open(turn)
		switch kind := fleet.KindOf(err); {
		case kind == fleet.NotFound:
			f.done.Left = true
			return f.done, nil
		case kind == fleet.Stale: // another attempt follows the peer
			return f.done, fail(ctx, err)
		case turn.Err() != nil:
			return f.done, ctx.Err()
		case err != nil:
			f.done.Reason = string(kind)
			activity.GetLogger(ctx).Info("the stream of a peer broke", "peer", in.Peer, "err", err)
		}
		if took {
			wait = firstRetry
		}
		if f.beat(turn) != nil || pause.For(turn, wait) != nil {
			continue // the turn is over
		}
	}
}

const (
	firstRetry = 200 * time.Millisecond
	// maxLine is the longest line that a peer may send, in bytes.
	maxLine = 16 << 20
	// applyAtOnce is how many changes are applied in one transaction.
	applyAtOnce = 500
)

// following is one turn under way.
type following struct {
	*Regions
	claim copies.Claim
	done  Followed
}

// beat says that this turn lives, to Temporal and to the store.
func (f *following) beat(ctx context.Context) error {
	activity.RecordHeartbeat(ctx, f.done)
	return f.Store.SeeStream(ctx, f.claim)
}

// open follows the peer's stream to its end, and reports whether anything was applied.
func (f *following) open(ctx context.Context) (took bool, err error) {
	position, err := f.Store.ClaimStream(ctx, f.claim)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := f.Peers.Watch(ctx, f.claim.Peer, position)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // it was read
	f.done.Streams++
	lines := make(chan line, applyAtOnce)
	go read(ctx, body, lines)
	s := &stream{f: f}
	for {
		select {
		case <-ctx.Done():
			return s.took, ctx.Err()
		case <-time.After(f.Silence):
			return s.took, fleet.Errorf(fleet.Unavailable, "region %s sent nothing for %v", f.claim.Peer, f.Silence)
		case l := <-lines:
			if l.err != nil {
				return s.took, l.err
			}
			if err := s.take(ctx, l); err != nil {
				return s.took, err
			}
		}
	}
}

// line is one line of a stream, or how the stream ended. An empty one is a sign of life.
type line struct {
	api.WatchLine
	err error
}

var errStreamEnded = fleet.Errorf(fleet.Unavailable, "the peer ended the stream")

func read(ctx context.Context, from io.Reader, to chan<- line) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	put := func(l line) bool {
		select {
		case to <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for lines.Scan() {
		var l line
		if text := lines.Bytes(); len(text) > 0 {
			if err := json.Unmarshal(text, &l.WatchLine); err != nil {
				put(line{err: fleet.Errorf(fleet.Invalid, "a line that is not JSON: %w", err)})
				return
			}
		}
		if !put(l) {
			return
		}
	}
	err := lines.Err()
	if err == nil || errors.Is(err, context.Canceled) {
		put(line{err: errStreamEnded})
		return
	}
	put(line{err: fleet.Errorf(fleet.Unavailable, "read the stream: %w", err)})
}

// stream is what was read of one stream and is not applied yet.
type stream struct {
	f        *following
	changes  []fleet.CopyChange
	snapshot int64 // lines since the stream began, or since a reset
	took     bool
}

func (s *stream) take(ctx context.Context, l line) error {
	switch l.Type {
	case "":
		return s.f.beat(ctx)
	case api.WatchObject, api.WatchGone:
		s.snapshot++
		c, err := watch.ChangeOf(s.f.claim.Peer, l.WatchLine)
		if err != nil {
			return err
		}
		if s.changes = append(s.changes, c); len(s.changes) < applyAtOnce {
			return nil
		}
		return s.apply(ctx, "", false)
	case api.WatchSnapshotSize:
		if l.Count != s.snapshot {
			return fleet.Errorf(fleet.Invalid, "a snapshot of %d lines says that it has %d", s.snapshot, l.Count)
		}
		return s.apply(ctx, "", false)
	case api.WatchCurrent:
		return s.apply(ctx, l.Token, true)
	case api.WatchHardReset:
		s.snapshot, s.changes = 0, nil
	}
	return nil // of a newer region
}

// apply writes what was read. A peer that sends the end of a set before its changes are written gets no position.
func (s *stream) apply(ctx context.Context, position string, current bool) error {
	applied, err := s.f.Store.Apply(ctx, copies.Set{Claim: s.f.claim, Changes: s.changes, Position: position, Current: current})
	if err != nil {
		return err
	}
	s.changes, s.took = nil, true
	s.f.done.Written += applied.Written
	s.f.done.Ended += applied.Ended
	s.f.done.Refused += applied.Refused
	activity.RecordHeartbeat(ctx, s.f.done)
	return nil
}
