//go:build slow

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// empty waits until regions have nothing of what another one created under the project.
func (p sharedProject) empty(t *testing.T, of string, at ...string) {
	t.Helper()
	for _, region := range at {
		waitFor(t, region+" has nothing of "+of, func(ctx context.Context) error {
			have, err := p.seen(ctx, region, of)
			if err == nil && len(have) > 0 {
				err = fmt.Errorf("%s has %v", region, have)
			}
			return err
		})
	}
}

// shares has three regions share a project, and in the end share nothing. M1, M4, M8, M10 to M14, M16, M17, M18, M19, M20, M27 to M29, M35, M39, M42
func (m *mesh) shares(t *testing.T) {
	p := sharedProject{m, "shop"}
	p.allow(t, "eu", "ap", "eu", "us")
	p.pool(t, "eu", "eu-pool", 1)

	t.Run("each enabled region has what another one declares", func(t *testing.T) {
		p.same(t, "eu", "us", "ap")
		p.pool(t, "us", "us-pool", 2) // in a project of which it has a copy
		p.same(t, "us", "eu", "ap")
		out, _ := newCLI(t, m.regions["ap"]).call(t, cliOK, "get", "pools", "--region", "us")
		require.Contains(t, out, "us-pool")
		manifest := filepath.Join(t.TempDir(), "pool.yaml")
		require.NoError(t, os.WriteFile(manifest, []byte("kind: Pool\nname: us-applied\nproject: shop\nspec:\n  maxReplicas: 3\n"), 0o600))
		newCLI(t, m.regions["us"]).call(t, cliOK, "apply", "-f", manifest)
		p.same(t, "us", "eu", "ap")
	})
	t.Run("only the owner writes", func(t *testing.T) {
		_, err := m.regions["us"].api.Delete(t.Context(), fleet.ObjectKey{Kind: fleet.KindPool, Name: "eu-pool"}, api.Mutation{})
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	})
	for _, name := range []string{serverName, postgresName, temporalName} {
		t.Run("nothing is lost when "+name+" is killed, of the owner or of who follows", func(t *testing.T) {
			for i, region := range []string{"eu", "us"} {
				p.pool(t, "eu", "eu-pool", 10+i)
				m.regions[region].kill(t, region+"/"+name)
				p.pool(t, "eu", "eu-"+name, i+1)
				p.same(t, "eu", "us", "ap")
				p.pool(t, "us", "us-"+name, i+1)
				p.same(t, "us", "eu", "ap")
			}
		})
	}
	t.Run("a server that stands still, and wakes, writes nothing that is old", func(t *testing.T) {
		m.regions["us"].signal(t, "us/"+serverName, syscall.SIGSTOP)
		p.pool(t, "eu", "paused", 1)
		p.same(t, "eu", "ap")
		m.regions["us"].signal(t, "us/"+serverName, syscall.SIGCONT)
		p.pool(t, "eu", "paused", 2)
		p.same(t, "eu", "us", "ap")
	})
	t.Run("a region that is cut off keeps its copies, and has all that it missed", func(t *testing.T) {
		m.link(t, "cut", "eu", "us")
		m.waits(t, "cut off", "us", "eu", isCut)
		before, err := p.seen(t.Context(), "us", "eu")
		require.NoError(t, err)
		p.pool(t, "eu", "missed", 1)
		_, err = m.regions["eu"].api.Delete(t.Context(), fleet.ObjectKey{Kind: fleet.KindPool, Name: "paused"}, api.Mutation{})
		require.NoError(t, err)
		p.same(t, "eu", "ap")
		still, err := p.seen(t.Context(), "us", "eu")
		require.NoError(t, err)
		require.Equal(t, before, still)
		m.link(t, "heal", "eu", "us")
		p.same(t, "eu", "us", "ap")
	})
	t.Run("a region that the policy drops loses its copies, and keeps what it owns", func(t *testing.T) {
		p.allow(t, "eu", "ap", "eu")
		p.empty(t, "eu", "us")
		p.empty(t, "us", "eu", "ap")
		own, err := p.seen(t.Context(), "us", "us")
		require.NoError(t, err)
		require.NotEmpty(t, own)
		p.same(t, "eu", "ap")
		p.allow(t, "eu", "ap", "eu", "us")
		p.same(t, "eu", "us", "ap")
		p.same(t, "us", "eu", "ap")
	})
	t.Run("a region that has copies of a peer does not remove it", func(t *testing.T) {
		_, err := m.regions["us"].api.RemoveRegion(t.Context(), "eu", api.Mutation{})
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		p.allow(t, "eu", "eu")
		p.empty(t, "eu", "us", "ap")
		p.empty(t, "us", "eu", "ap")
	})
}
