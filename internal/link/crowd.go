package link

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// crowdWorkers are how many batches of one kind run concurrently: one that waits for a lock does not block the
	// others.
	crowdWorkers = 2
	// crowdRoom limits the waiting calls of one kind; more would be pointless.
	crowdRoom = 20_000
)

// crowd serves calls in batches: calls that arrive while others are served wait for the next batch, so that a storm
// costs few transactions and a quiet day no delay. Callers take turns: many calls of one leave room for the others.
// A batch starts after each of its calls arrived, so no caller gets a stale answer.
type crowd[In, Out any] struct {
	serve func(ctx context.Context, all []In) ([]Out, error)
	// key marks calls of which a batch may have only one; nil means no limit.
	key   func(In) string
	most  int
	sizes prometheus.Observer

	mu      sync.Mutex
	queues  map[string][]*asked[In, Out]
	turns   []string // waiting callers, the next one first
	waiting int
	news    chan struct{}
}

// asked is a waiting call.
type asked[In, Out any] struct {
	in   In
	out  Out
	err  error
	done chan struct{}
	gone bool // the caller has given up; guarded by the crowd's lock
}

func newCrowd[In, Out any](most int, key func(In) string, serve func(context.Context, []In) ([]Out, error)) *crowd[In, Out] {
	return &crowd[In, Out]{serve: serve, key: key, most: most, queues: map[string][]*asked[In, Out]{}, news: make(chan struct{}, 1)}
}

// ask waits for the answer, but not longer than the caller does. A call that is given up before its turn costs
// nothing; one given up later is served in vain.
func (c *crowd[In, Out]) ask(ctx context.Context, who string, in In) (Out, error) {
	a := &asked[In, Out]{in: in, done: make(chan struct{})}
	if !c.join(who, a) {
		var none Out
		return none, fleet.Errorf(fleet.Unavailable, "this server has too many waiting calls").WithHint("try again in a moment")
	}
	select {
	case <-a.done:
		return a.out, a.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		a.gone = true
		var none Out
		return none, fleet.Errorf(fleet.Unavailable, "the call timed out before it was served: %w", ctx.Err())
	}
}

func (c *crowd[In, Out]) join(who string, a *asked[In, Out]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting >= crowdRoom {
		return false
	}
	if len(c.queues[who]) == 0 {
		c.turns = append(c.turns, who)
	}
	c.queues[who] = append(c.queues[who], a)
	c.waiting++
	c.wake()
	return true
}

func (c *crowd[In, Out]) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// run serves until the context ends.
func (c *crowd[In, Out]) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range crowdWorkers {
		group.Go(func() error { return c.work(ctx) })
	}
	return group.Wait()
}

func (c *crowd[In, Out]) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.news:
		}
		for all := c.take(); len(all) > 0; all = c.take() {
			c.answer(ctx, all)
		}
	}
}

// take returns the next batch: one call of each caller, then another round, while there is room. If a call's key is
// already in the batch, that call and those behind it wait for the next.
func (c *crowd[In, Out]) take() []*asked[In, Out] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*asked[In, Out]
	var later []string
	keys := map[string]bool{}
	for len(c.turns) > 0 && len(batch) < c.most {
		who := c.turns[0]
		c.turns = c.turns[1:]
		a := c.queues[who][0]
		if !a.gone && c.key != nil && keys[c.key(a.in)] {
			later = append(later, who)
			continue
		}
		c.shift(who)
		if a.gone {
			continue
		}
		if c.key != nil {
			keys[c.key(a.in)] = true
		}
		batch = append(batch, a)
	}
	c.turns = append(later, c.turns...)
	if c.waiting > 0 {
		c.wake() // another worker continues
	}
	return batch
}

// shift takes the first call of a queue, whose next one queues behind all others.
func (c *crowd[In, Out]) shift(who string) {
	c.waiting--
	rest := c.queues[who][1:]
	if len(rest) == 0 {
		delete(c.queues, who)
		return
	}
	c.queues[who] = rest
	c.turns = append(c.turns, who)
}

// answer serves a batch. If that fails and the database is reachable, each call is served separately, so that a bad
// one does not affect the others. A call that was given up is skipped: its caller may have returned and been served
// by then.
func (c *crowd[In, Out]) answer(ctx context.Context, all []*asked[In, Out]) {
	err := c.attempt(ctx, all)
	for _, a := range all {
		if err != nil && len(all) > 1 && fleet.KindOf(err) != fleet.Unavailable && !c.left(a) {
			a.err = c.attempt(ctx, []*asked[In, Out]{a})
		} else {
			a.err = err
		}
		close(a.done)
	}
}

func (c *crowd[In, Out]) left(a *asked[In, Out]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.gone
}

func (c *crowd[In, Out]) attempt(ctx context.Context, all []*asked[In, Out]) error {
	ctx, cancel := within(ctx)
	defer cancel()
	ins := make([]In, len(all))
	for i, a := range all {
		ins[i] = a.in
	}
	c.sizes.Observe(float64(len(all)))
	outs, err := c.serve(ctx, ins)
	if err != nil {
		return err
	}
	for i, a := range all {
		a.out = outs[i]
	}
	return nil
}

// count is how many calls wait.
func (c *crowd[In, Out]) count() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.waiting)
}
