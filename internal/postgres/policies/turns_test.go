package policies_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// wakes are the subjects whose entities wait to be woken.
func (b *bench) wakes() []string {
	b.T.Helper()
	out, err := b.WaitingWakes(b.Ctx(), 0, 10)
	require.NoError(b.T, err)
	return out
}

// count counts the objects of the project red that are in a region.
func (b *bench) count(region string) int {
	b.T.Helper()
	return stores.Scan[int](b, `SELECT count(*) FROM objects WHERE project = 'red' AND kind = 'pool' AND syncing -> 'regions' ? $1`, region)
}

// M5, M11, M12, M13, M36, X2: a changed policy is applied in pages of 500, one update of each object, without a generation or an operation;
// its outbox row stays until the turn is done.
func TestPolicyIsAppliedInPages(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pools(1200)
	require.Empty(t, b.wakes(), "a new holder governs nothing")
	out := b.project("", policyOf(here, "us"))
	subject := fleet.PolicySubject(redKey)
	require.Equal(t, []string{subject}, b.wakes())
	known := len(b.Feed(postgres.Cursor{}))

	first := b.page(redKey)
	require.Equal(t, fleet.PolicyTurn{Generation: out.After.Generation, At: "red//pool//p-0500", Visited: 500, Refreshed: 500}, first)
	require.Equal(t, 500, b.count("us"))
	require.Equal(t, []string{subject}, b.wakes(), "the relay repeats the wake of an entity that was lost")
	turn, pages := b.apply(redKey)
	require.Equal(t, fleet.PolicyTurn{Generation: out.After.Generation, Visited: 1201, Refreshed: 1200, Done: true}, turn, "the project itself is among them")
	require.Equal(t, 2, pages)
	require.Empty(t, b.wakes())
	require.Equal(t, 1200, b.count("us"))
	require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM objects WHERE kind = 'pool' AND (generation <> 1 OR resource_version <> 1)`))
	require.Len(t, b.Feed(postgres.Cursor{})[known:], 1200)
	require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM operations`))

	turn, _ = b.apply(redKey)
	require.True(t, turn.Done)
	require.Len(t, b.Feed(postgres.Cursor{})[known:], 1200, "again it changes nothing")
	b.project("", policyOf(here, "us"))
	require.Empty(t, b.wakes(), "the same policy is not applied again")
}

// M37: a newer policy continues where the turn is, wraps around, and ends where it came.
func TestNewerPolicyContinues(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pools(1700)
	b.project("", policyOf(here, "us"))
	b.page(redKey)
	b.page(redKey)
	require.Equal(t, 1000, b.count("us"))
	out := b.project("", policyOf(here, "eu"))
	require.Equal(t, fleet.PolicyTurn{Generation: out.After.Generation, At: "red//pool//p-1500", Visited: 500, Refreshed: 500}, b.page(redKey))
	require.Equal(t, 500, b.count("eu"), "the next page has the newest policy")
	turn, pages := b.apply(redKey)
	require.Equal(t, 1700, b.count("eu"))
	require.Zero(t, b.count("us"))
	require.Equal(t, fleet.PolicyTurn{Generation: out.After.Generation, Visited: 1701, Refreshed: 1700, Done: true}, turn)
	require.Equal(t, 4, pages, "the rest, and from the start to where it began")
}

// M36, X13, X23: two runs at once, or one that was killed after any step, repeat a page at most and change nothing
// twice.
func TestPolicyRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pools(1700)
	b.project("", policyOf(here, "us"))
	known := len(b.Feed(postgres.Cursor{}))
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for done := false; !done; {
				turn, err := b.ApplyPolicyPage(b.Ctx(), fleet.PolicyVisit{Kind: redKey.Kind, Name: redKey.Name, Run: stores.Run1})
				if err != nil {
					b.T.Error(err)
					return
				}
				done = turn.Done
			}
		})
	}
	group.Wait()
	require.Len(t, b.Feed(postgres.Cursor{})[known:], 1700)
	require.Equal(t, 1700, b.count("us"))
	require.EqualValues(t, 1701, stores.Scan[int64](b, `SELECT visited FROM policy_turns`))
}

// M6, M7, M9, M11: each kind that can hold a policy is followed, and a holder's change visits only what it governs: an organization
// its projects, a service the objects that name it.
func TestPolicyOfEachHolder(t *testing.T) {
	t.Parallel()
	for _, row := range fleet.DeclaredKinds() {
		require.Equal(t, row.Holder, slices.Contains([]fleet.ObjectKind{fleet.KindOrganization, fleet.KindProject, fleet.KindService}, row.Kind), "each is changed below")
	}
	b := bare(t)
	b.organization(nil)
	b.project("acme", nil)
	b.declare(inProject(fleet.ProjectKey("blue"), "blue"), fleet.ProjectSpec{Organization: "acme"})
	b.declare(inProject(fleet.ProjectKey("green"), "green"), fleet.ProjectSpec{})
	b.service(nil)
	b.pool("a", "web")
	b.pool("b", "")
	for name, project := range map[string]fleet.ProjectName{"c": "blue", "d": "green"} {
		b.declare(inProject(poolKey(name), project), fleet.PoolSpec{})
	}

	b.organization(policyOf(here, "us"))
	turn, _ := b.apply(acme)
	require.Equal(t, []int64{6, 6}, []int64{turn.Visited, turn.Refreshed})
	for _, key := range []fleet.ObjectKey{redKey, fleet.ProjectKey("blue"), web, poolKey("a"), poolKey("b"), poolKey("c")} {
		b.syncing(key, here, "us")
	}
	b.syncing(poolKey("d"), here)

	b.service(policyOf(here, "eu"))
	turn, _ = b.apply(web)
	require.Equal(t, []int64{1, 1}, []int64{turn.Visited, turn.Refreshed})
	b.syncing(poolKey("a"), "eu", here)
	b.syncing(poolKey("b"), here, "us")

	b.organization(nil)
	b.apply(acme)
	b.syncing(poolKey("b"), here)
	b.syncing(poolKey("a"), "eu", here)
}

// M37: the turn of an organization continues in the middle of its projects, whatever is deleted meanwhile.
func TestNewerPolicyOfAnOrganization(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.organization(nil)
	names := []fleet.ProjectName{"p1", "p2", "p3", "p4"}
	for _, name := range names {
		b.declare(inProject(fleet.ProjectKey(name), name), fleet.ProjectSpec{Organization: "acme"})
		b.declare(inProject(poolKey("of-"+string(name)), name), fleet.PoolSpec{})
	}
	b.organization(policyOf(here, "us"))
	b.page(acme)
	b.page(acme)
	b.organization(policyOf(here, "eu"))
	for _, w := range []postgres.Write{inProject(poolKey("of-p3"), "p3"), inProject(fleet.ProjectKey("p3"), "p3")} {
		_, err := b.DeleteDeclared(b.Ctx(), w)
		require.NoError(t, err)
	}
	turn, _ := b.apply(acme)
	require.EqualValues(t, 6, turn.Visited)
	for _, name := range []string{"p1", "p2", "p4"} {
		b.syncing(poolKey("of-"+name), "eu", here)
		b.syncing(fleet.ProjectKey(fleet.ProjectName(name)), "eu", here)
	}
}

// X2, X6: a request opens an operation, which the end of the turn ends; it joins the turn that is under way.
func TestAskPolicy(t *testing.T) {
	t.Parallel()
	ask := func(b *bench) postgres.Operation {
		t.Helper()
		op, err := b.AskPolicy(b.Ctx(), policies.PolicyRequest{Request: stores.WriteOf(redKey).Request, Holder: redKey})
		stores.Refused(t, fleet.NotFound, err)
		_ = op
		return op
	}
	b := bare(t)
	ask(b)
	b.project("", nil)
	b.pools(700)
	in := policies.PolicyRequest{Request: stores.WriteOf(redKey).Request, Holder: redKey}
	in.Project = "red"
	op, err := b.AskPolicy(b.Ctx(), in)
	require.NoError(t, err)
	require.Equal(t, []any{fleet.OperationApplyPolicy, "project/red", fleet.PolicySubject(redKey), fleet.ProjectName("red")}, []any{op.Kind, op.Holder, op.Subject, op.Project})
	require.Equal(t, []string{op.Subject}, b.wakes())
	b.page(redKey)
	require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
	require.Equal(t, stores.Run1, b.Operation(op.ID).EntityRun)
	second, err := b.AskPolicy(b.Ctx(), in)
	require.NoError(t, err)
	turn, pages := b.apply(redKey)
	require.Equal(t, 1, pages, "it joins the turn")
	require.EqualValues(t, 701, turn.Visited)
	for _, id := range []fleet.OperationID{op.ID, second.ID} {
		got := b.Operation(id)
		require.Equal(t, []any{fleet.OperationSucceeded, "applied"}, []any{got.State, got.Reason})
		require.Contains(t, got.Message, "701 objects visited, the syncing of 0 changed")
	}

	third, err := b.AskPolicy(b.Ctx(), in)
	require.NoError(t, err)
	cancelled, err := b.CancelOperation(b.Ctx(), third.ID)
	require.NoError(t, err)
	require.Equal(t, fleet.OperationCancelled, cancelled.State)
	fourth, err := b.AskPolicy(b.Ctx(), in)
	require.NoError(t, err)
	b.Exec(`DELETE FROM objects WHERE kind = 'pool'`)
	_, err = b.DeleteDeclared(b.Ctx(), inProject(redKey, "red"))
	require.NoError(t, err)
	require.True(t, b.page(redKey).Done)
	require.Equal(t, []any{fleet.OperationFailed, "not_found"}, []any{b.Operation(fourth.ID).State, b.Operation(fourth.ID).Reason})
	require.Empty(t, b.wakes())
}

// M36: a page reads its own objects, not all that follow: else a turn takes the square of their number.
func TestPageReadsItsObjectsOnly(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pools(3000)
	tx, err := b.Raw.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	for _, setting := range []string{"plan_cache_mode = force_generic_plan", "enable_seqscan = off"} { // as the store has it
		_, err := tx.Exec(t.Context(), "SET LOCAL "+setting)
		require.NoError(t, err)
	}
	q := db.New(tx)
	require.NoError(t, q.PlanInOrder(t.Context()))
	rows, err := q.GovernedAfter(t.Context(), db.GovernedAfterParams{Project: "red", Kind: "pool", Name: "p-1000", MaxRows: 500})
	require.NoError(t, err)
	require.Len(t, rows, 500)
	require.Equal(t, "p-1500", rows[499].Name)
	var read int64
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'objects'`).Scan(&read))
	require.LessOrEqual(t, read, int64(501))
}

// X23: a page holds the lock of no holder alone while it waits for another object: writers of that one wait for the
// holder's.
func TestPageAndWriterDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	name := "a"
	for postgres.LockID(poolKey(name)) < postgres.LockID(redKey) { // locks are taken in their order
		name += "a"
	}
	b.pool(name, "")
	b.project("", policyOf(here, "us"))
	tx, err := b.Raw.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, postgres.LockID(poolKey(name)))
	require.NoError(t, err)
	paged := stores.Background(func() (fleet.PolicyTurn, error) {
		return b.ApplyPolicyPage(context.Background(), fleet.PolicyVisit{Kind: redKey.Kind, Name: redKey.Name, Run: stores.Run1})
	})
	b.WaitsForLock(1)
	var free bool
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock_shared($1)`, postgres.LockID(redKey)).Scan(&free))
	require.True(t, free)
	require.NoError(t, tx.Rollback(t.Context()))
	turn, err := paged()
	require.NoError(t, err)
	require.True(t, turn.Done)
	b.syncing(poolKey(name), here, "us")
}

// M36: a page is as large as it may be, and tells from the feed how much others write.
func TestPolicyPagesOfAnySize(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pools(120)
	b.project("", policyOf(here, "us"))
	first := b.pageOf(redKey, 50)
	require.EqualValues(t, []int64{50, 50}, []int64{first.Visited, first.Refreshed})
	b.pool("z", "")
	next := b.pageOf(redKey, 20)
	require.EqualValues(t, []int64{70, 70}, []int64{next.Visited, next.Refreshed})
	require.EqualValues(t, 1, next.Feed-first.Feed-(next.Refreshed-first.Refreshed), "one write by somebody else")
	require.EqualValues(t, 52, b.pageOf(redKey, 10_000).Visited-next.Visited, "the rest, the new one, and the project itself")
}
