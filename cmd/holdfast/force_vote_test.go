package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X21
func TestNodeForceVote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := identity.Generate("plant-1-a")
	require.NoError(t, err)
	require.NoError(t, key.Save(filepath.Join(dir, "node.key")))
	votes := filepath.Join(dir, votefile.Name)
	state := votefile.State{Site: "plant-1", Node: "plant-1-a", Record: lease.Joining()}
	require.NoError(t, votefile.Save(votes, state))
	s := newShell(t, nil)
	args := []string{"node", "force-vote", "--data", dir, "--site", "plant-1"}
	is := func(want lease.Record) {
		t.Helper()
		got, err := votefile.Load(votes, state, votefile.Enrolled)
		require.NoError(t, err)
		require.Equal(t, want, got.Record)
	}

	require.Equal(t, exitUsage, s.run(args...).code, "the epoch is the operator's word")
	for _, said := range []string{"", "no\n", "y\n"} {
		s.stdin = said
		got := s.run(append(args, "--epoch", "41")...)
		require.NotEqual(t, exitOK, got.code)
		require.Contains(t, got.stderr, "is it certain that no epoch above 41 was ever granted?")
		is(lease.Joining())
	}
	s.stdin = "yes\n"
	require.Contains(t, s.ok(append(args, "--epoch", "41")...).stdout, "node plant-1-a votes on epochs above 41")
	is(lease.Record{Promised: 41})
	again := s.run(append(args, "--epoch", "50", "--yes")...)
	require.NotEqual(t, exitOK, again.code)
	require.Contains(t, again.stderr, "is not lost")
}

// X21
func TestAdminForceVote(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, "eu-1")
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Declare(t.Context(), postgres.Write{
		Key: fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-1"}, Request: postgres.Request{Project: "default", Actor: "ann"},
	}, fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: "plant-1-a", Role: fleet.RoleActive}, {Name: "plant-1-b", Role: fleet.RoleStandby}}})
	require.NoError(t, err)
	s := newShell(t, nil)
	args := func(site string) []string {
		return []string{"admin", "force-vote", site, "--database-url", url, "--region", "eu-1", "--epoch", "41", "--yes"}
	}
	for site, says := range map[string]string{"plant-2": "site plant-2 not found", "plant-1": "is not lost"} {
		got := s.run(args(site)...)
		require.NotEqual(t, exitOK, got.code)
		require.Contains(t, got.stderr, says)
	}
	s.ok("admin", "raise-era", "--database-url", url, "--region", "eu-1")
	require.Contains(t, s.ok(args("plant-1")...).stdout, "the region votes on site plant-1 again, on epochs above 41")
	v, err := store.VoteOf(t.Context(), "plant-1")
	require.NoError(t, err)
	require.Equal(t, []any{false, int64(41)}, []any{v.Vote.Lost, v.Vote.Promised})
}
