//go:build slow

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/workflows"
)

// alter changes the copies of a region behind its back.
func (p sharedProject) alter(t *testing.T, region string) {
	t.Helper()
	for _, change := range []string{
		`UPDATE copies SET spec = '{"maxReplicas": 4711}' WHERE project = $1 AND kind = 'pool' AND hashtext(name) % 7 = 0`,
		`DELETE FROM copies WHERE project = $1 AND kind = 'pool' AND hashtext(name) % 7 = 1`,
	} {
		changed, err := p.regions[region].pg.Exec(t.Context(), change, p.name)
		require.NoError(t, err)
		require.Positive(t, changed.RowsAffected())
	}
}

// sync asks one region to compare itself with another one.
func (m *mesh) sync(t *testing.T, at, peer string) api.Operation {
	t.Helper()
	var asked api.Accepted
	waitFor(t, at+" takes the request", func(ctx context.Context) (err error) {
		asked, err = m.regions[at].api.SyncRegion(ctx, peer, api.RegionSync{}, api.Mutation{})
		return err
	})
	return *asked.Operation
}

func (m *mesh) synced(t *testing.T, at string, op api.Operation) {
	t.Helper()
	waitFor(t, "the comparison ends", func(ctx context.Context) error {
		now, err := m.regions[at].api.Operation(ctx, op.ID, 0)
		if err == nil && now.State != fleet.OperationSucceeded {
			err = fmt.Errorf("%w: %s %s", errNotYet, now.State, now.Message)
		}
		return err
	})
}

// compares has a region compare its copies with their owner: what was changed behind its back is mended, whatever is killed
// or cut meanwhile. M21, M22, M23, M24, M25, M26, M33, X14, X23
func (m *mesh) compares(t *testing.T) {
	p := sharedProject{m, "mended"}
	p.allow(t, "eu", "ap", "eu", "us")
	const pools = 300
	for i := range pools {
		p.pool(t, "eu", fmt.Sprintf("mended-%d", i), i)
	}
	p.same(t, "eu", "us", "ap")
	us := newCLI(t, m.regions["us"])

	t.Run("by the command line", func(t *testing.T) {
		p.alter(t, "us")
		out, _ := us.call(t, cliOK, "sync", "now", "eu")
		require.Contains(t, out, "differed")
		p.same(t, "eu", "us")
		out, _ = us.call(t, cliOK, "sync", "status")
		require.Contains(t, out, "following")
		us.call(t, cliOK, "sync", "quarantine", "eu")
		us.call(t, cliOK, "sync", "lost", "-o", "yaml")
		_, problem := us.call(t, cliMissing, "sync", "now", "nowhere")
		require.Contains(t, problem, "holdfast get regions")
		us.call(t, cliUsage, "sync", "now", "us")
	})
	t.Run("by any Temporal client", func(t *testing.T) {
		p.alter(t, "us")
		out := m.regions["us"].result(t, m.regions["us"].door(t, "any-sync", workflows.TypeSyncRegion, `{"peer":"eu"}`, time.Minute))
		require.Equal(t, fleet.OperationSucceeded, out.State)
		p.same(t, "eu", "us")
	})
	for _, name := range []string{serverName, postgresName, temporalName} {
		for _, region := range []string{"us", "eu"} {
			t.Run("while "+name+" of "+region+" is killed", func(t *testing.T) {
				p.alter(t, "us")
				op := m.sync(t, "us", "eu")
				m.regions[region].kill(t, region+"/"+name)
				m.synced(t, "us", op)
				p.same(t, "eu", "us")
			})
		}
	}
	t.Run("while the owner stands still", func(t *testing.T) {
		p.alter(t, "us")
		m.regions["eu"].signal(t, "eu/"+serverName, syscall.SIGSTOP)
		op := m.sync(t, "us", "eu")
		waitFor(t, "it says what it waits for", func(ctx context.Context) error {
			now, err := m.regions["us"].api.Operation(ctx, op.ID, 0)
			if err == nil && (now.State.Ended() || now.Reason != "waiting" || !strings.Contains(now.Message, "unreachable since")) {
				err = fmt.Errorf("%w: %s %s %s", errNotYet, now.State, now.Reason, now.Message)
			}
			return err
		})
		m.regions["eu"].signal(t, "eu/"+serverName, syscall.SIGCONT)
		m.synced(t, "us", op)
		p.same(t, "eu", "us")
	})
	t.Run("behind a link that was cut", func(t *testing.T) {
		m.link(t, "cut", "eu", "us")
		m.waits(t, "cut off", "us", "eu", isCut)
		p.alter(t, "us")
		op := m.sync(t, "us", "eu")
		m.link(t, "heal", "eu", "us")
		m.synced(t, "us", op)
		p.same(t, "eu", "us")
	})
	t.Run("at the start of a server", func(t *testing.T) {
		p.alter(t, "us")
		m.regions["us"].kill(t, "us/"+serverName)
		p.same(t, "eu", "us")
	})
	t.Run("with an owner that was restored", func(t *testing.T) { p.restored(t, us) })
	p.allow(t, "eu", "eu")
	p.empty(t, "eu", "us", "ap")
}

// restored puts the database of the owner back to a time before: what the others know of the time that was undone is listed there,
// and replaced by what the owner has. X1, X3
func (p sharedProject) restored(t *testing.T, us cli) {
	eu := p.regions["eu"]
	live, kept := filepath.Join(eu.data, postgresName), filepath.Join(t.TempDir(), "backup")
	stopped := func(do func()) {
		p.order(t, "stop", "eu%2F"+serverName)
		p.order(t, "stop", "eu%2F"+postgresName)
		do()
		p.order(t, "start", "eu%2F"+postgresName)
	}
	stopped(func() { require.NoError(t, exec.Command("cp", "-a", live, kept).Run()) })
	p.order(t, "start", "eu%2F"+serverName)
	p.pool(t, "eu", "mended-1", 901)
	p.pool(t, "eu", "late", 7)
	_, err := eu.api.Delete(t.Context(), fleet.ObjectKey{Kind: fleet.KindPool, Name: "mended-2"}, api.Mutation{})
	require.NoError(t, err)
	p.same(t, "eu", "us", "ap")
	stopped(func() {
		require.NoError(t, os.RemoveAll(live))
		require.NoError(t, exec.Command("cp", "-a", kept, live).Run())
	})
	waitFor(t, "the era is raised", func(ctx context.Context) error {
		_, err := postgres.RaiseEra(ctx, eu.database, "eu")
		return err
	})
	p.order(t, "start", "eu%2F"+serverName)
	p.pool(t, "eu", "mended-3", 903) // as soon as it has compared with the others
	p.same(t, "eu", "us", "ap")
	var lost struct {
		Items []api.LostWrite `json:"items"`
	}
	waitFor(t, "what is lost is listed", func(ctx context.Context) error {
		us.json(t, &lost, cliOK, "sync", "lost")
		if len(lost.Items) != 3 {
			return fmt.Errorf("%w: %v", errNotYet, lost.Items)
		}
		return nil
	})
	was := map[string]bool{}
	for _, l := range lost.Items {
		was[l.Name] = l.Object != nil
	}
	require.Equal(t, map[string]bool{"mended-1": true, "late": true, "mended-2": false}, was)
}
