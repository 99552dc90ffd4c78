package watch

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

const (
	// readAtOnce is how many events are read, and sent, at a time.
	readAtOnce = 500
	// keptEvents is how many events are kept at least for streams that are a little behind; others read them again. Twice as many are kept at
	// most, so that not each event moves all of them.
	keptEvents = 2 * readAtOnce
	// readGap is the least time between two readings that found all there was.
	readGap = 3 * time.Millisecond
	// heldEvery is the time between two looks at what holds the feed back.
	heldEvery = time.Second
)

// feed is what a reader reads.
type feed interface {
	ReadFeed(ctx context.Context, after postgres.Cursor, limit int32) ([]postgres.Event, error)
	FeedEnd(ctx context.Context) (postgres.Cursor, error)
	// FeedHeldBack is how long a transaction has held back what is read.
	FeedHeldBack(ctx context.Context) (time.Duration, error)
}

// Reader reads the feed of changes once for all streams of a server, and only while there is one.
type Reader struct {
	feed  feed
	every time.Duration
	wake  chan struct{}

	mu      sync.Mutex
	streams int
	cancel  context.CancelFunc
	from    postgres.Cursor // what is kept follows this place
	kept    []postgres.Event
	news    chan struct{} // closed when there is more
	err     error         // of the last reading
	held    time.Duration // how long the feed had been held back at the last look
}

// NewReader makes a reader that looks at an interval, and sooner when it is woken.
func NewReader(f feed, every time.Duration) *Reader {
	return &Reader{feed: f, every: every, wake: make(chan struct{}, 1), news: make(chan struct{})}
}

// Wake tells the reader that something was committed.
func (r *Reader) Wake() { poke.Once(r.wake) }

// join begins to read with the first stream.
func (r *Reader) join(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams++; r.streams > 1 {
		return nil
	}
	end, err := r.feed.FeedEnd(ctx)
	if err != nil {
		r.streams--
		return err
	}
	r.from, r.kept, r.err = end, nil, nil
	running, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go r.run(running)
	return nil
}

func (r *Reader) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams--; r.streams == 0 {
		r.cancel()
	}
}

func (r *Reader) run(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	gap := time.NewTimer(readGap)
	defer gap.Stop()
	held := time.NewTicker(heldEvery)
	defer held.Stop()
	for r.lookHeld(ctx); ctx.Err() == nil; {
		select {
		case <-held.C:
			r.lookHeld(ctx)
		default:
		}
		if r.read(ctx) {
			continue
		}
		gap.Reset(readGap)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-r.wake:
			select {
			case <-ctx.Done():
			case <-gap.C: // commits that follow each other closely are read together
			}
		}
	}
}

// lookHeld keeps how long the feed is held back; unreadable, it stays as it was, like the feed.
func (r *Reader) lookHeld(ctx context.Context) {
	held, err := r.feed.FeedHeldBack(ctx)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
}

// heldBack is how long the feed has been held back, up to a second ago.
func (r *Reader) heldBack() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// read keeps what follows, and reports whether there may be more at once.
func (r *Reader) read(ctx context.Context) bool {
	r.mu.Lock()
	at := r.end()
	r.mu.Unlock()
	rows, err := r.feed.ReadFeed(ctx, at, readAtOnce)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil { // others read by now
		return false
	}
	if r.err = err; len(rows) == 0 && err == nil {
		return false
	}
	r.kept = append(r.kept, rows...)
	if over := len(r.kept) - keptEvents; over > keptEvents {
		r.from = r.kept[over-1].Cursor
		r.kept = append([]postgres.Event(nil), r.kept[over:]...)
	}
	close(r.news)
	r.news = make(chan struct{})
	return len(rows) == readAtOnce
}

func (r *Reader) end() postgres.Cursor {
	if n := len(r.kept); n > 0 {
		return r.kept[n-1].Cursor
	}
	return r.from
}

// after gives at most readAtOnce events after a place; if there is none, it gives a channel that closes when there may be. Fresh events
// are read now: the objects of those that are kept may be older than what a watch has shown.
func (r *Reader) after(ctx context.Context, at postgres.Cursor, fresh bool) ([]postgres.Event, <-chan struct{}, error) { //nolint:revive // fresh is a state of the watch
	r.mu.Lock()
	news, behind := r.news, at.Before(r.from)
	i := sort.Search(len(r.kept), func(i int) bool { return at.Before(r.kept[i].Cursor) })
	rows, err := r.kept[i:min(len(r.kept), i+readAtOnce)], r.err
	r.mu.Unlock()
	if behind || fresh {
		rows, err = r.feed.ReadFeed(ctx, at, readAtOnce)
	}
	return rows, news, err
}
