package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// breaks makes one kind of statement fail from now on, as a damaged file would.
func breaks(t *testing.T, s *Store, what string) {
	t.Helper()
	_, err := s.db.Exec("CREATE TRIGGER broken BEFORE " + what + " BEGIN SELECT RAISE(ABORT, 'broken'); END")
	require.NoError(t, err)
}

// N95: whatever statement of a step fails, the step fails, says so, and leaves nothing behind.
func TestBrokenStatement(t *testing.T) {
	t.Parallel()
	first, cf := body(100, 1)
	next, cn := body(200, 2)
	third, ct := body(300, 3)
	stages := func(s *Store) error {
		return s.Stage(t.Context(), attempt(2, cn))
	}
	commits := func(s *Store) error { return s.Commit(t.Context(), filled(t, s, attempt(3, ct), third)) }
	batch := func(turn Turn) func(s *Store) error {
		return func(s *Store) error {
			a := attempt(3, ct)
			if turn == TurnRenumber {
				a = attempt(3, cn)
			} else {
				a = whole(t, a, third)
			}
			refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: a, Turn: turn}})
			require.NoError(t, err, "the batch goes on")
			return refused[0]
		}
	}
	accepts := func(s *Store) error { return s.Accept(t.Context(), attempt(3, ct)) }
	for name, c := range map[string]struct {
		what   string
		do     func(*Store) error
		before func(*Store) error
	}{
		"Accept":                         {what: "UPDATE ON instances", do: accepts},
		"SetAside":                       {what: "INSERT ON set_aside", do: func(s *Store) error { return s.SetAside(t.Context(), attempt(3, ct)) }},
		"Stage, its body":                {what: "INSERT ON contents", do: commits, before: accepts},
		"Stage, the bytes of its body":   {what: "INSERT ON chunks", do: commits, before: accepts},
		"Stage, its slot":                {what: "INSERT ON slots", do: commits, before: accepts},
		"Promote, what goes":             {what: "DELETE ON slots WHEN old.slot = 'previous'", do: commits, before: accepts},
		"Promote, what moves":            {what: "UPDATE ON slots", do: commits, before: accepts},
		"Promote, what becomes current":  {what: "UPDATE ON slots WHEN new.slot = 'current'", do: commits, before: accepts},
		"Renumber, what was staged":      {what: "DELETE ON slots", do: func(s *Store) error { return s.Renumber(t.Context(), attempt(3, cn)) }, before: stages},
		"Renumber":                       {what: "UPDATE ON slots", do: func(s *Store) error { return s.Renumber(t.Context(), attempt(3, cn)) }},
		"a batch, its mark":              {what: "UPDATE ON instances", do: batch(TurnCommit)},
		"a batch, what was staged":       {what: "DELETE ON slots WHEN old.slot = 'staged'", do: batch(TurnCommit), before: stages},
		"a batch, what goes":             {what: "DELETE ON slots WHEN old.slot = 'previous'", do: batch(TurnCommit)},
		"a batch, what moves":            {what: "UPDATE ON slots", do: batch(TurnCommit)},
		"a batch, its slot":              {what: "INSERT ON slots", do: batch(TurnCommit)},
		"a batch, its body":              {what: "UPDATE ON contents", do: batch(TurnCommit)},
		"a batch, the bytes of its body": {what: "UPDATE ON chunks", do: batch(TurnCommit)},
		"a batch, a body to keep":        {what: "INSERT ON contents", do: batch(TurnKeep)},
		"a batch, bytes to keep":         {what: "INSERT ON chunks", do: batch(TurnKeep)},
		"a batch, a body set aside":      {what: "INSERT ON contents", do: batch(TurnSetAside)},
		"a batch, a number":              {what: "UPDATE ON slots", do: batch(TurnRenumber)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			commit(t, s, attempt(1, cf), first)
			commit(t, s, attempt(2, cn), next)
			if c.before != nil {
				require.NoError(t, c.before(s))
			}
			was := held(t, s)
			breaks(t, s, c.what)
			err := c.do(s)
			require.ErrorContains(t, err, "broken")
			require.Equal(t, fleet.Conflict, fleet.KindOf(err))
			require.Equal(t, was, held(t, s))
			sizes, err := s.CompleteContents(t.Context(), []fleet.Hash{ct.Hash})
			require.NoError(t, err)
			require.Empty(t, sizes, "no body without its slot")
		})
	}
}

// N96: a store whose file fails says so in every answer, and never that there is nothing.
func TestClosedStore(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	data, c := body(100, 1)
	commit(t, s, attempt(1, c), data)
	part, err := s.OpenStaging(t.Context(), fleet.Content{Kind: c.Kind, Hash: fleet.Hash(strings.Repeat("a", 64)), Size: 5})
	require.NoError(t, err)
	require.NoError(t, part.Append(t.Context(), data[:2]))
	require.NoError(t, s.Close())
	ctx := t.Context()
	fails := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"HeldAll": fails(s.HeldAll(ctx)), "HeldBack": fails(s.HeldBack(ctx)), "Instance": fails(s.Instance(ctx, name)),
		"Instances": fails(s.Instances(ctx)), "InstancesOf": fails(s.InstancesOf(ctx, []fleet.InstanceName{name})),
		"Uneasy": fails(s.Uneasy(ctx, nil)), "HasContent": fails(s.HasContent(ctx, c.Hash)),
		"CompleteContents": fails(s.CompleteContents(ctx, []fleet.Hash{c.Hash})), "OpenStaging": fails(s.OpenStaging(ctx, c)),
		"Append": part.Append(ctx, data[:1]), "Restart": part.Restart(ctx),
		"Collect": fails(s.Collect(ctx)), "LogOffset": fails(s.LogOffset(ctx, name)), "SetLogOffset": s.SetLogOffset(ctx, name, 1),
		"Replicas": fails(s.Replicas(ctx)), "ReplicaSet": fails(s.ReplicaSet(ctx)), "ReplicaLogOffset": fails(s.ReplicaLogOffset(ctx, "aaaaaaaaaaaa")),
		"SeenSet": fails(s.SeenSet(ctx)), "SetRegion": s.SetRegion(ctx, "eu-1"), "Accept": s.Accept(ctx, attempt(2, c)),
		"Meta": fails(s.Meta(ctx)),
	} {
		require.ErrorContains(t, err, "closed", name)
	}
	_, _, err = s.Adopt(ctx, Right{fleet.RoleStandby, 9}, "")
	require.ErrorContains(t, err, "closed")
	require.Equal(t, int64(2), part.Received(), "what failed counts for nothing")
}

// N95: where not even the way back works, as on a full disk, the error says both.
func TestBrokenRollback(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	err := s.tx(t.Context(), "test", nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "ROLLBACK")
		require.NoError(t, err)
		return fleet.Errorf(fleet.Stale, "what went wrong")
	})
	require.Equal(t, fleet.Stale, fleet.KindOf(err))
	require.ErrorContains(t, err, "what went wrong")
	require.ErrorContains(t, err, "cannot rollback")
}

// N95: a panic in a transaction that somebody recovers, as a worker does of an activity, leaves the store usable.
func TestPanicGivesBack(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	require.Panics(t, func() {
		_ = s.write(t.Context(), "test", func(ctx context.Context, q *db.Queries) error {
			require.NoError(t, q.SetRegion(ctx, "half"))
			panic("a defect") //nolint:forbidigo // what the test is about
		})
	})
	require.Zero(t, s.db.Stats().InUse, "the only connection")
	meta, err := s.Meta(t.Context())
	require.NoError(t, err)
	require.Empty(t, meta.Region)
}
