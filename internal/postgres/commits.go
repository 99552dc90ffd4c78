package postgres

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// tellEvery is the least time between two notifications of one server.
const tellEvery = 20 * time.Millisecond

// Commits hurries what reads the feed in the other servers of a region. It notifies after a commit, and many commits at once: a
// NOTIFY inside of writes would make them wait for each other. Readers also look by themselves.
type Commits struct {
	store  *Store
	server string
	wake   chan struct{}
}

// NewCommits is the part of one server, by its id.
func NewCommits(s *Store, server string) *Commits {
	return &Commits{store: s, server: server, wake: make(chan struct{}, 1)}
}

// Note has the others notified; it does not wait.
func (c *Commits) Note() {
	select {
	case c.wake <- struct{}{}:
	default: // it looks soon
	}
}

// Tell notifies the others until ctx ends, or Postgres does not answer.
func (c *Commits) Tell(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		if err := c.tell(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// tell notifies the others once. It does not call OnCommit, and does not wait for the disk.
func (c *Commits) tell(ctx context.Context) error {
	_, err := inTransaction(ctx, c.store.Pool, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil {
			return err
		}
		return q.TellCommit(ctx, c.server)
	})
	return err
}

// Listen calls heard when another server committed something, until ctx ends or the connection breaks.
func (c *Commits) Listen(ctx context.Context, heard func()) error {
	return c.store.Listen(ctx, "holdfast_commit", heard, func(server string) {
		if server != c.server {
			heard()
		}
	})
}
