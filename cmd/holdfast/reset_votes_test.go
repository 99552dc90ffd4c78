package main

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X20, X21
func TestResetVotes(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, "eu-1")
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Declare(t.Context(), postgres.Write{
		Key: fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-1"}, Request: postgres.Request{Project: "default", Actor: "ann"},
	}, fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: "plant-1-a", Role: fleet.RoleActive}, {Name: "plant-1-b", Role: fleet.RoleStandby}}})
	require.NoError(t, err)
	raw, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := raw.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	promised := func() int64 {
		t.Helper()
		v, err := store.VoteOf(t.Context(), "plant-1")
		require.NoError(t, err)
		return v.Vote.Promised
	}
	exec("UPDATE site_leases SET promised = $1", int64(math.MaxInt64-1))
	s := newShell(t, nil)
	args := func(site string, more ...string) []string {
		return append([]string{"admin", "reset-votes", site, "--database-url", url, "--region", "eu-1"}, more...)
	}

	for _, c := range []struct {
		code  int
		says  string
		stdin string
		args  []string
	}{
		{exitUsage, "not confirmed; nothing was changed", "", args("plant-1")},
		{exitUsage, "Reset the votes of site plant-1?", "y\n", args("plant-1")},
		{exitUsage, `invalid --epoch "-1": want a whole number`, "", args("plant-1", "--yes", "--epoch", "-1")},
		{exitUsage, "invalid --epoch 9223372036854775806: want at most", "", args("plant-1", "--yes", "--epoch", strconv.Itoa(math.MaxInt64-1))},
		{exitUsage, "site", "", args("Plant", "--yes")},
		{exitUsage, "accepts 1 arg", "", []string{"admin", "reset-votes"}},
		{exitNotFound, "site plant-2 not found", "", args("plant-2", "--yes")},
	} {
		s.stdin = c.stdin
		got := s.run(c.args...)
		require.Equal(t, c.code, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.says)
		require.Empty(t, got.stdout)
		require.EqualValues(t, math.MaxInt64-1, promised())
	}

	s.stdin = "yes\n"
	got := s.ok(args("plant-1")...) // no node is enrolled: it waits for none
	require.Contains(t, got.stderr, "from epoch 9223372036854775806 to 1025; waiting for the nodes")
	require.Regexp(t, `(?m)^region +reset +9223372036854775806 +1025$`, got.stdout)
	require.Regexp(t, `(?m)^plant-1-a +not enrolled`, got.stdout)
	require.EqualValues(t, 1025, promised())

	exec("UPDATE nodes SET enrolled_at = now(), signing_key = decode(repeat('00', 32), 'hex')")
	exec("UPDATE nodes SET revoked_at = now() WHERE name = 'plant-1-b'")
	exec(`UPDATE nodes SET counters = '{"lease_resets": 9000000, "lease_reset_from": 77}'`)
	var out siteReset
	require.NoError(t, json.Unmarshal([]byte(s.ok(args("plant-1", "--yes", "--epoch", "5000", "-o", "json")...).stdout), &out))
	require.EqualValues(t, 5000, out.Epoch)
	require.EqualValues(t, 1025, out.Promised)
	require.Equal(t, []nodeReset{
		{nodes.NodeReset{Node: "plant-1-a", Enrolled: true, Number: 9000000, From: 77}, voterReset},
		{nodes.NodeReset{Node: "plant-1-b", Enrolled: true, Revoked: true, Number: 9000000, From: 77}, voterRevoked},
	}, out.Nodes)
	exec(`UPDATE nodes SET counters = '{}'`)
	require.Contains(t, s.ok(args("plant-1", "--yes", "--wait", "10ms")...).stdout, "waiting", "a node that is away does not hold it up for ever")
}
