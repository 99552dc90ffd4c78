package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// holder waits until a node holds a site's lease, and gives it: the active one.
func (s *stack) holder(t *testing.T, site string) string {
	t.Helper()
	var node string
	waitFor(t, "somebody holds the lease of "+site, func(ctx context.Context) (err error) {
		node, err = s.holds(ctx, site)
		return err
	})
	return node
}

func (s *stack) holds(ctx context.Context, site string) (node string, err error) {
	err = s.pg.QueryRow(ctx, `SELECT holder FROM site_leases WHERE site = $1 AND counter > 0 AND NOT released`, site).Scan(&node)
	return node, err
}

// standby is the node of a site that is not active now.
func (s *stack) standby(t *testing.T, site string) string {
	t.Helper()
	return peerOf(site, s.holder(t, site))
}

func peerOf(site, node string) string {
	both := pair(site)
	return both[1-slices.Index(both, node)]
}

// activeFile waits until the file of an instance on its site's active node has these bytes.
func (s *stack) activeFile(t *testing.T, key fleet.ObjectKey, kind, hash string) {
	t.Helper()
	waitFor(t, "the active has the file of "+key.String(), func(ctx context.Context) error {
		node, err := s.holds(ctx, key.Scope)
		if err != nil {
			return err
		}
		return fileIs(s.configFile(node, key.Name, kind), hash)
	})
}

// nowhere waits until no node of a site has a file of an instance.
func (s *stack) nowhere(t *testing.T, key fleet.ObjectKey) {
	t.Helper()
	for _, node := range pair(key.Scope) {
		eventually(t, node+" has no file of "+key.Name, func() bool {
			_, err := os.Stat(s.configFile(node, key.Name, "config.json"))
			return os.IsNotExist(err)
		})
	}
}

// hold has the work of a child wait at a step while its process goes on, and with it the lease
// of a node: what is under way stays so for as long as a test needs.
func (s *stack) hold(t *testing.T, process, step string) (letGo func()) {
	t.Helper()
	path := filepath.Join(s.failpoints, process+"."+step+".hold")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	letGo = sync.OnceFunc(func() {
		_ = os.Remove(path) // nobody else does
		_ = gate.Close()
	})
	t.Cleanup(letGo)
	return letGo
}

func fileIs(path, hash string) error {
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if got := hashOf(body); got != hash {
		return fmt.Errorf("it has %.12s, wanted is %.12s", got, hash)
	}
	return nil
}

// lease is what the region has on record of a site's lease.
type leaseRow struct {
	holder          string
	epoch, promised int64
	held            bool
}

func (s *stack) lease(ctx context.Context, site string) (l leaseRow, err error) {
	err = s.pg.QueryRow(ctx, `SELECT holder, epoch, promised, counter > 0 AND NOT released AND ttl > '0' FROM site_leases WHERE site = $1`, site).
		Scan(&l.holder, &l.epoch, &l.promised, &l.held)
	return l, err
}

// agreed is the lease of a site once the standby granted it too: before, the active may raise its epoch.
func (s *stack) agreed(t *testing.T, site string) (l leaseRow) {
	t.Helper()
	waitFor(t, "both nodes of "+site+" agree", func(ctx context.Context) (err error) {
		if l, err = s.lease(ctx, site); err != nil || !l.held {
			return errors.Join(err, errNotYet)
		}
		node := peerOf(site, l.holder)
		state, err := votefile.Load(filepath.Join(s.data, "nodes", node, votefile.Name),
			votefile.State{Site: fleet.SiteName(site), Node: fleet.NodeName(node)}, votefile.Enrolled)
		if err == nil && (string(state.Record.Holder) != l.holder || state.Record.Epoch != l.epoch) {
			err = errNotYet
		}
		return err
	})
	return l
}

// failover makes a node its site's active one, and waits until it is.
func (s *stack) failover(t *testing.T, site, to string) {
	t.Helper()
	requireSucceeded(t, s.ended(t, s.askFailover(t, site, to).ID))
}

func (s *stack) askFailover(t *testing.T, site, to string) api.Operation {
	t.Helper()
	return s.change(t, "fail "+site+" over", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return s.api.FailoverSite(ctx, site, api.FailoverRequest{To: to}, m)
	})
}
