package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver of node.db

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// nodeStores reads what nodes hold from their files, without asking them.
type nodeStores struct {
	root string
	mu   sync.Mutex
	open map[string]*sql.DB
}

func (n *nodeStores) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, db := range n.open {
		_ = db.Close()
	}
}

// forget closes a node's file before it is taken away.
func (n *nodeStores) forget(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if db := n.open[node]; db != nil {
		_ = db.Close()
	}
	delete(n.open, node)
}

func (n *nodeStores) of(node string) (*sql.DB, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if db := n.open[node]; db != nil {
		return db, nil
	}
	path := url.URL{Scheme: "file", Path: filepath.Join(n.root, node, "node.db"), RawQuery: "mode=ro&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", path.String())
	if err != nil {
		return nil, err
	}
	if n.open == nil {
		n.open = map[string]*sql.DB{}
	}
	n.open[node] = db
	return db, nil
}

// slot is what a node's current slot of one instance says.
type slot struct {
	fleet.Version
	action, hash string
	enabled      bool
	content      sql.NullInt64
}

var errNothingHeld = errors.New("the node holds nothing under this name")

func (n *nodeStores) current(ctx context.Context, node, name string) (slot, error) {
	var s slot
	db, err := n.of(node)
	if err != nil {
		return s, err
	}
	err = db.QueryRowContext(ctx, `SELECT era, revision, action, hash, enabled, content_id FROM slots
		WHERE instance = ? AND slot = 'current'`, name).Scan(&s.Era, &s.Revision, &s.action, &s.hash, &s.enabled, &s.content)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNothingHeld
	}
	return s, err
}

// currents are all current slots of a node.
func (n *nodeStores) currents(ctx context.Context, node string) (map[string]fleet.Version, error) {
	db, err := n.of(node)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT instance, era, revision FROM slots WHERE slot = 'current'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]fleet.Version{}
	for rows.Next() {
		var name string
		var v fleet.Version
		if err := rows.Scan(&name, &v.Era, &v.Revision); err != nil {
			return nil, err
		}
		all[name] = v
	}
	return all, rows.Err()
}

// bytesHash is the SHA-256 of the bytes that a node's store holds, chunk by chunk.
func (n *nodeStores) bytesHash(ctx context.Context, node string, s slot) (string, error) {
	db, err := n.of(node)
	if err != nil {
		return "", err
	}
	rows, err := db.QueryContext(ctx, `SELECT position, data FROM chunks WHERE content_id = ? ORDER BY position`, s.content)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	sum, at := sha256.New(), int64(0)
	for rows.Next() {
		var position int64
		var data []byte
		if err := rows.Scan(&position, &data); err != nil {
			return "", err
		}
		if position != at {
			return "", fmt.Errorf("%s has a chunk at %d, expected at %d", node, position, at)
		}
		at += int64(len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)), rows.Err()
}

// hashOf names bytes as the region does.
func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// pair are the nodes of a site, the first active one first.
func pair(site string) []string { return []string{site + "-a", site + "-b"} }

// held waits until both nodes of a site hold the desired revision of an instance with these
// very bytes, counted in their files, and gives its number.
func (s *stack) held(t *testing.T, key fleet.ObjectKey, hash string) int64 {
	t.Helper()
	var number int64
	waitFor(t, key.String()+" is the same on both nodes", func(ctx context.Context) (err error) {
		number, err = s.count(ctx, `SELECT desired_revision FROM subjects WHERE site = $1 AND name = $2`, key.Scope, key.Name)
		if err != nil {
			return err
		}
		for _, node := range pair(key.Scope) {
			got, err := s.stores.current(ctx, node, key.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
			if got.Revision != number || got.hash != hash {
				return fmt.Errorf("%s holds revision %d with %.12s, wanted is %d with %.12s", node, got.Revision, got.hash, number, hash)
			}
		}
		return nil
	})
	for _, node := range pair(key.Scope) {
		got, err := s.stores.current(t.Context(), node, key.Name)
		require.NoError(t, err)
		sum, err := s.stores.bytesHash(t.Context(), node, got)
		require.NoError(t, err)
		require.Equal(t, hash, sum, "the bytes in the store of %s", node)
	}
	return number
}

// configFile is the file that an instance of an active node reads.
func (s *stack) configFile(node, name, kind string) string {
	return filepath.Join(s.data, "nodes", node, "instances", name, kind)
}

// fileHash waits until a file has these bytes: it is placed before the store switches, and
// derived again after a crash.
func fileHash(t *testing.T, path, hash string) {
	t.Helper()
	waitFor(t, path, func(context.Context) error {
		return fileIs(path, hash)
	})
}

// watchOrder looks all the time at what nodes hold, and fails the test when a number ever
// goes back (N49 to N53).
func (s *stack) watchOrder(t *testing.T, nodes ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	back := make(chan []string, 1)
	go func() {
		var seen []string
		high := map[string]fleet.Version{}
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, node := range nodes {
				now, err := s.stores.currents(ctx, node)
				if err != nil {
					continue // a node that was never started has no file yet
				}
				for name, v := range now {
					if at := node + "/" + name; high[at].Newer(v) {
						seen = append(seen, fmt.Sprintf("%s went from %v back to %v", at, high[at], v))
					} else {
						high[at] = v
					}
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		back <- seen
	}()
	t.Cleanup(func() {
		cancel()
		require.Empty(t, <-back)
	})
}
