//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// cargo is an instance that gets one revision after the other while the campaign runs.
type cargo struct {
	*stack
	lives
	key        fleet.ObjectKey
	durability fleet.Durability
	witness    string
	draw       *mathrand.Rand
	hurry      chan struct{} // put the next one now

	mu      sync.Mutex
	number  int
	numbers map[string]int // by hash
	acks    []ack
	asked   []string // operations
}

const (
	// askLimit is how long the load waits for one operation: the next one supersedes it. It
	// doubles while nothing succeeds, up to the longest: on a machine that is slow enough all
	// would supersede each other.
	askLimit, longestAsk = 3 * time.Second, time.Minute
	// restBetween is the longest pause between two revisions of an instance.
	restBetween = 1500 * time.Millisecond
)

// load puts revisions until the context ends.
func (c *cargo) load(ctx context.Context) {
	limit := askLimit
	for ctx.Err() == nil {
		number, op := c.put(ctx)
		if op == "" {
			return
		}
		if limit = min(2*limit, longestAsk); c.follow(ctx, ack{number: number}, op, limit/2) {
			limit = askLimit
		}
		rest := time.NewTimer(time.Duration(c.draw.Int64N(int64(restBetween))))
		select {
		case <-ctx.Done():
		case <-c.hurry:
		case <-rest.C:
		}
		rest.Stop()
	}
}

// put gives "" at the end of the load.
func (c *cargo) put(ctx context.Context) (number int, operation string) {
	c.mu.Lock()
	c.number++
	number = c.number
	config := fmt.Appendf(nil, `{"instance":%q,"number":%d}`, c.key.Name, number)
	c.numbers[hashOf(config)] = number
	c.mu.Unlock()
	in := api.InstancePut{
		Config: config, Durability: c.durability,
		Run: &fleet.Run{Command: []string{c.witness}, Env: map[string]string{"WITNESS": c.dir}},
	}
	m := api.Mutation{IdempotencyKey: rand.Text()}
	for {
		once, cancel := context.WithTimeout(ctx, askLimit)
		out, err := c.api.PutInstance(once, c.key, in, m)
		cancel()
		if err == nil {
			c.mu.Lock()
			c.asked = append(c.asked, out.Operation.ID)
			c.mu.Unlock()
			return number, out.Operation.ID
		}
		if !c.again(ctx) {
			return 0, ""
		}
	}
}

// again waits before something is tried again.
func (*cargo) again(ctx context.Context) bool {
	pause := time.NewTimer(100 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow waits for an operation for a while, and notes what it acknowledged.
func (c *cargo) follow(ctx context.Context, a ack, operation string, limit time.Duration) (acknowledged bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		op, err := c.api.Operation(ctx, operation, askLimit)
		if err == nil && op.State == fleet.OperationSucceeded {
			a.at = bootNow()
			c.mu.Lock()
			c.acks = append(c.acks, a)
			c.mu.Unlock()
			return true
		}
		if err == nil && op.State.Ended() || !c.again(ctx) {
			return false
		}
	}
}

// last is the newest number that was put, and the newest that was acknowledged.
func (c *cargo) last() (put, acked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.acks {
		acked = max(acked, a.number)
	}
	return c.number, acked
}

// promised are the acknowledgements that hold from the moment of a failover.
func (c *cargo) promised() []ack {
	if c.durability == fleet.DurabilityAsync {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.acks)
}

// newest is the run that began last, if there is one.
func (c *cargo) newest() (life, error) {
	all, err := c.all()
	if err != nil || len(all) == 0 {
		return life{}, errors.Join(err, errNotYet)
	}
	return all[len(all)-1], nil
}

// whole says how an instance lacks what was put after a number: it must be acknowledged, be in
// the stores of both nodes, and run on the node that runs the others.
func (c *cargo) whole(ctx context.Context, after int) error {
	_, acked := c.last()
	if acked <= after {
		select {
		case c.hurry <- struct{}{}:
		default:
		}
		return fmt.Errorf("%s: acknowledged is %d, wanted is one above %d", c.key.Name, acked, after)
	}
	for _, node := range pair(c.key.Scope) {
		held, err := c.stores.current(ctx, node, c.key.Name)
		if err != nil {
			return err
		}
		c.mu.Lock()
		number := c.numbers[held.hash]
		c.mu.Unlock()
		if number < acked {
			return fmt.Errorf("%s: %s holds number %d, acknowledged is %d", c.key.Name, node, number, acked)
		}
	}
	r, err := c.newest()
	if err == nil && (r.number < acked || !alive(r.pid)) {
		err = fmt.Errorf("%s: acknowledged is %d, the last was %v", c.key.Name, acked, r)
	}
	return err
}
