package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// copyStore keeps the copies of what peers own.
type copyStore interface {
	ClaimStream(ctx context.Context, peer fleet.RegionName, run string) (fleet.StreamClaim, error)
	// SeeStream is stale for a claim that another has replaced. It stores the lag, unless that is negative.
	SeeStream(ctx context.Context, c fleet.StreamClaim, lag time.Duration) (fleet.StreamPlace, error)
	// Lags has no peer that this region was never up to date with.
	Lags(ctx context.Context) (map[fleet.RegionName]time.Duration, error)
	ApplyCopies(ctx context.Context, s fleet.CopySet) (fleet.CopiesApplied, error)
}

// Peers are the other regions.
type Peers interface {
	// Allowed and Watch return not_found for a region that is not a peer, or is disabled.
	Allowed(ctx context.Context, peer fleet.RegionName) error
	// Watch opens the stream of a peer at a place.
	Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error)
}

// Follower applies what peers change.
type Follower struct {
	Store copyStore
	Peers Peers
	// Waiting and Parts complete copies that name more than themselves; without them, these wait.
	Waiting partStore
	Parts   Parts
	// Rival hears of objects that two regions claimed in one epoch; it may be nil.
	Rival func(peer fleet.RegionName, objects int)
	// MaxBody is the largest body that a copy may name, in bytes.
	MaxBody int64
	Log     *slog.Logger
	Now     func() time.Time
	// Turn is how long one call follows a peer, Beat the time between its signs of life, Silence how long a stream may say
	// nothing, Retry the longest pause between two attempts to reach a peer.
	Turn, Beat, Silence, Retry time.Duration
}

// Follow applies what a peer changes, for one turn. A stream that breaks is opened again behind what was applied. It
// claims once: a server that was paused finds that another turn has replaced it.
func (r *Follower) Follow(ctx context.Context, peer fleet.RegionName, run string, beat func(fleet.Followed)) (fleet.Followed, error) {
	if err := r.Peers.Allowed(ctx, peer); err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			return fleet.Followed{Left: true}, nil
		}
		return fleet.Followed{}, err
	}
	claim, err := r.Store.ClaimStream(ctx, peer, run)
	if err != nil {
		return fleet.Followed{}, err
	}
	lags, err := r.Store.Lags(ctx)
	if err != nil {
		return fleet.Followed{}, err
	}
	f := &following{Follower: r, claim: claim, tell: beat, waits: make(chan struct{}, 1), retry: make(chan struct{}, 1)}
	if lag, known := lags[peer]; known {
		f.mark = mark{at: r.Now(), held: lag}
	}
	turn, cancel := context.WithTimeout(ctx, r.Turn)
	defer cancel()
	turn, end := context.WithCancelCause(turn)
	defer end(nil)
	var alive sync.WaitGroup
	alive.Go(func() { f.live(turn, end) })
	if f.Parts != nil {
		alive.Go(func() { f.arrive(turn, end) })
	}
	err = f.run(turn)
	end(nil)
	alive.Wait()
	if cause := context.Cause(turn); fleet.KindOf(cause) == fleet.Stale {
		err = cause
	}
	return f.counts(), errors.Join(err, ctx.Err())
}

const (
	firstRetry = 200 * time.Millisecond
	// maxLine is the longest line that a peer may send, in bytes.
	maxLine = 16 << 20
	// linesAhead is how many lines are read before they are taken.
	linesAhead = 8
	// applyAtOnce is how many changes are applied in one transaction, and applyBytes after how many bytes it is made.
	applyAtOnce = 500
	applyBytes  = 8 << 20
	// mostHeld bounds what a peer says of how long its feed was held back, in milliseconds: some years.
	mostHeld = 1 << 38
	// placeEvery is how often a place is stored that comes without changes.
	placeEvery = time.Second
)

// following is one turn under way.
type following struct {
	*Follower
	claim fleet.StreamClaim
	tell  func(fleet.Followed)
	waits chan struct{} // a change was put aside that waits for its parts
	retry chan struct{} // changes wait for a policy

	mu   sync.Mutex
	done fleet.Followed
	mark mark // the last that was fully applied
}

// mark is when the peer said that it had nothing more, and how long its feed had been held back then. Its zero value is never.
type mark struct {
	at   time.Time
	held time.Duration
}

// lag is how far behind the peer this region is since a mark, on the clock of this process; negative if that is not known.
func (m mark) lag(now time.Time) time.Duration {
	if m.at.IsZero() {
		return -1
	}
	return now.Sub(m.at) + m.held
}

func (f *following) lag() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mark.lag(f.Now())
}

func (f *following) counts() fleet.Followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

func (f *following) count(change func(*fleet.Followed)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.done)
}

// live gives signs of life, and ends the turn when another has replaced it.
func (f *following) live(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(f.Beat)
	defer tick.Stop()
	for {
		f.tell(f.counts())
		at, err := f.Store.SeeStream(ctx, f.claim, f.lag())
		if fleet.KindOf(err) == fleet.Stale {
			end(err)
			return
		}
		if at.Waits {
			poke.Once(f.retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// run opens the stream until the turn is over, or the region is no peer any more.
func (f *following) run(ctx context.Context) error {
	for wait := firstRetry; ; wait = min(2*wait, f.Retry) {
		took, err := f.open(ctx)
		switch kind := fleet.KindOf(err); {
		case kind == fleet.NotFound:
			f.count(func(c *fleet.Followed) { c.Left = true })
			return nil
		case kind == fleet.Stale:
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			f.count(func(c *fleet.Followed) { c.Reason = string(kind) })
			f.Log.Info("the stream of a peer broke", "peer", f.claim.Peer, "err", err)
		}
		if took {
			wait = firstRetry
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// open follows the peer's stream to its end, and reports whether anything was applied.
func (f *following) open(ctx context.Context) (took bool, err error) {
	at, err := f.Store.SeeStream(ctx, f.claim, f.lag())
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := f.Peers.Watch(ctx, f.claim.Peer, at)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // it was read
	f.count(func(c *fleet.Followed) { c.Streams++ })
	lines := make(chan line, linesAhead)
	go read(ctx, body, lines)
	s := &received{f: f, began: at.Began}
	silence, places := time.NewTimer(f.Silence), time.NewTicker(placeEvery)
	defer silence.Stop()
	defer places.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-f.retry:
			err = s.apply(ctx, nil, false)
		case <-places.C:
			err = s.keepPlace(ctx)
		case <-silence.C:
			err = fleet.Errorf(fleet.Unavailable, "region %s sent nothing for %v", f.claim.Peer, f.Silence)
		case l := <-lines:
			silence.Reset(f.Silence)
			if err = s.take(ctx, l); err == nil && s.due && len(lines) == 0 { // lines that are here are applied together
				err = s.keepPlace(ctx)
			}
		}
		if err != nil {
			return s.took, err
		}
	}
}

// line is one line of a stream, or how the stream ended. An empty one is a sign of life.
type line struct {
	api.WatchLine
	size int
	err  error
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
			l.size = len(text)
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

// received is what was read of one stream and is not applied yet.
type received struct {
	f        *following
	changes  []fleet.CopyChange
	bytes    int                // of the changes
	place    *fleet.StreamPlace // up to which all was read, and that is not stored yet
	mark     mark               // that came with the place
	due      bool               // it came with changes, or ended a snapshot: it is stored without waiting
	snapshot int64              // lines since the stream began, or since a reset
	began    string             // where the first snapshot began that did not end
	reset    bool               // the place was of no use, and that is not stored yet
	undone   int64              // the first event before the place that a restore of the peer undid
	took     bool
}

func (s *received) take(ctx context.Context, l line) error {
	if l.err != nil {
		return l.err
	}
	switch l.Type {
	case api.WatchObject, api.WatchGone:
		s.snapshot++
		c, err := ChangeOf(s.f.claim.Peer, l.WatchLine)
		if err != nil {
			return err
		}
		s.bytes += l.size
		if s.changes = append(s.changes, c); len(s.changes) < applyAtOnce && s.bytes < applyBytes {
			return nil
		}
		return s.apply(ctx, nil, false)
	case api.WatchSnapshot:
		if s.began == "" {
			s.began = l.Token
		}
		return s.apply(ctx, &fleet.StreamPlace{Began: s.began}, false)
	case api.WatchSnapshotSize:
		if l.Count != s.snapshot {
			return fleet.Errorf(fleet.Invalid, "received %d lines of a snapshot whose size is %d", s.snapshot, l.Count)
		}
		return s.apply(ctx, nil, false)
	case api.WatchCurrent:
		s.place, s.due = &fleet.StreamPlace{Position: l.Token}, s.due || len(s.changes) > 0 || s.began != ""
		s.mark = mark{s.f.Now(), time.Duration(min(max(0, l.HeldBackMs), mostHeld)) * time.Millisecond}
		s.began = ""
	case api.WatchHardReset:
		s.snapshot, s.changes, s.bytes, s.began, s.place, s.due, s.reset = 0, nil, 0, "", nil, false, true
		s.undone = l.Number
	}
	return nil // of a newer region
}

// keepPlace stores the place up to which all was read, with the changes before it.
func (s *received) keepPlace(ctx context.Context) error {
	if s.place == nil {
		return nil
	}
	at := s.place
	s.place, s.due = nil, false
	if err := s.apply(ctx, at, true); err != nil {
		return err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.mark = s.mark
	return nil
}

// apply writes what was read.
func (s *received) apply(ctx context.Context, at *fleet.StreamPlace, current bool) error {
	applied, err := s.f.Store.ApplyCopies(ctx, fleet.CopySet{
		Claim: s.f.claim, Changes: s.changes, Place: at, Current: current, Lag: s.mark.lag(s.f.Now()), Reset: s.reset, UndoneFrom: s.undone,
	})
	if err != nil {
		return err
	}
	s.changes, s.bytes, s.took, s.reset, s.undone = nil, 0, true, false, 0
	s.f.counted(applied)
	if applied.Waiting > 0 {
		poke.Once(s.f.waits)
	}
	return nil
}

// counted adds what became of changes.
func (f *following) counted(applied fleet.CopiesApplied) {
	if applied.Rivals > 0 && f.Rival != nil {
		f.Rival(f.claim.Peer, applied.Rivals)
	}
	f.count(func(c *fleet.Followed) {
		c.Written += applied.Written
		c.Ended += applied.Ended
		c.Kept += applied.Kept
		c.Refused += applied.Refused
		c.Waiting += applied.Waiting
		c.Rivals += applied.Rivals
	})
}
