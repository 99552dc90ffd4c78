//go:build slow

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

const (
	stormInstances = 100
	stormRounds    = 10 // revisions of each
	stormClients   = 50
)

// released is one PUT that was accepted.
type released struct {
	name, hash, operation string
	revision              int64
}

// storm puts every instance many times, by many clients at once and in no order.
func (s *stack) storm(t *testing.T, site string) []released {
	t.Helper()
	var retries atomic.Int32
	client, err := api.NewClient(s.doc.API, s.doc.Token, api.WithRetryNotice(func(api.Retry) { retries.Add(1) }))
	require.NoError(t, err)
	turns := make(chan int)
	var mu sync.Mutex
	var all []released
	var failed []error
	var clients sync.WaitGroup
	for range stormClients {
		clients.Go(func() {
			for n := range turns {
				config := fmt.Appendf(nil, `{"put":%d}`, n)
				key := instanceKey(site, fmt.Sprintf("storm-%d", n%stormInstances))
				out, err := client.PutInstance(t.Context(), key, api.InstancePut{Config: config}, api.Mutation{})
				mu.Lock()
				switch {
				case err != nil:
					failed = append(failed, err)
				case out.Operation == nil:
					failed = append(failed, fmt.Errorf("put %d started nothing", n))
				default:
					all = append(all, released{key.Name, hashOf(config), out.Operation.ID, out.Operation.Revision})
				}
				mu.Unlock()
			}
		})
	}
	for n := range stormInstances * stormRounds {
		turns <- n
	}
	close(turns)
	clients.Wait()
	t.Logf("%d calls were repeated", retries.Load())
	require.Empty(t, failed)
	return all
}

// watchPending looks all the time at the pending rows: at most one of each instance, and
// never an older one after a newer.
func (s *stack) watchPending(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	wrong, looks := make(chan []string, 1), 0
	go func() {
		var seen []string
		high := map[string]int64{}
		for ctx.Err() == nil {
			// The end cuts no look short: the database would log that as an error.
			now, err := s.pending(context.WithoutCancel(ctx))
			if err != nil {
				continue
			}
			looks++
			for _, p := range now {
				if p.Rows > 1 || p.Revision < high[p.Name] {
					seen = append(seen, fmt.Sprintf("%+v after revision %d", p, high[p.Name]))
				}
				high[p.Name] = p.Revision
			}
		}
		wrong <- seen
	}()
	return func() {
		cancel()
		require.Empty(t, <-wrong)
		require.Greater(t, looks, 10)
	}
}

// pendingOf counts the pending rows of an instance.
type pendingOf struct {
	Name           string
	Rows, Revision int64
}

func (s *stack) pending(ctx context.Context) ([]pendingOf, error) {
	rows, err := s.pg.Query(ctx, `SELECT name, count(*), max(revision) FROM pending GROUP BY name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[pendingOf])
}

// N16, N17, N18, N50, N52, N53, X1, X7, X23, X25
func TestE2EStorm(t *testing.T) { // alone: it loads the machine as it is, and would only measure how busy others make it
	// With --fast a node that is busy for 10 s counts as not there; a lease that is lost meanwhile is another story.
	s := startWith(t, 1, "--fast=false", lasting(30*time.Second))
	const site = "plant-1"
	live, err := s.count(t.Context(), `SELECT count(*) FROM servers`)
	require.NoError(t, err)
	require.EqualValues(t, 1, live, "a server that is ready has said so: its runs would be taken for stranded")
	s.watchOrder(t, pair(site)...)
	stop := s.watchPending(t)
	all := s.storm(t, site)
	require.Len(t, all, stormInstances*stormRounds)
	newest := map[string]released{}
	for _, r := range all {
		if r.revision > newest[r.name].revision {
			newest[r.name] = r
		}
	}
	require.Len(t, newest, stormInstances)
	s.settled(t)
	stop()
	for name, r := range newest {
		require.EqualValues(t, stormRounds, r.revision, name)
		require.Equal(t, r.revision, s.held(t, instanceKey(site, name), r.hash))
		requireSucceeded(t, s.ended(t, r.operation))
	}
	for _, query := range []string{
		`SELECT o::text FROM operations o WHERE NOT (state = 'succeeded' OR state = 'superseded')`,
		`SELECT d::text FROM deliveries d WHERE NOT (state = 'succeeded' OR state = 'superseded' OR state = 'unknown' AND reason = 'lease_moved')`,
	} {
		rows, err := s.pg.Query(t.Context(), query)
		require.NoError(t, err)
		otherwise, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, otherwise, "they ended otherwise")
	}
	text, err := os.ReadFile(filepath.Join(s.data, "logs", postgresName+".log"))
	require.NoError(t, err)
	require.False(t, bytes.Contains(text, []byte("deadlock")), "%s", text)
	require.False(t, bytes.Contains(text, []byte("ERROR")), "%s", text)
	s.asleep(t)
}
