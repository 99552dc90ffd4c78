package collect_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) collectBodiesPage() (int64, error) {
	n, _, err := b.CollectPage(b.Ctx(), fleet.CollectBodies, fleet.DefaultRetention())
	return n, err
}

// Section 3 of the design: bodies are collected safely against a new reference. Each order
// of the two transactions, by the place where the first one stops.
func TestCollectionMeetsANewReference(t *testing.T) {
	t.Parallel()

	// aged is a change of the press whose body is there, and too old.
	aged := func(t *testing.T, edits ...func(*deliveries.InstanceChange)) (*bench, deliveries.InstanceChange) {
		b := setup(t)
		c := b.ChangeOf(`{"n":1}`, edits...)
		b.Age("25 hours")
		return b, c
	}

	t.Run("the writer first: the collection passes over what it holds", func(t *testing.T) {
		t.Parallel()
		b, c := aged(t, stores.Unreleased)
		goOn := b.StopAt("objects")
		put := stores.Background(func() (postgres.Started, error) { return b.PutInstance(b.Ctx(), c) })
		b.WaitsForLock(1)
		n, err := b.collectBodiesPage()
		require.NoError(t, err)
		require.Zero(t, n)
		goOn()
		_, err = put()
		require.NoError(t, err)
		require.Zero(t, b.Collect(fleet.CollectBodies))
		require.True(t, b.Stored(`{"n":1}`))
	})

	for what, edit := range map[string]func(*deliveries.InstanceChange){
		"of a spec": stores.Unreleased, "of a revision": func(*deliveries.InstanceChange) {},
	} {
		t.Run("the collection first: a write "+what+" is refused whole, and goes well when it is sent again", func(t *testing.T) {
			t.Parallel()
			b, c := aged(t, edit)
			goOn := b.StopAt("body_chunks")
			page := stores.Background(b.collectBodiesPage)
			b.WaitsForLock(1)
			put := stores.Background(func() (postgres.Started, error) { return b.PutInstance(b.Ctx(), c) })
			b.WaitsForLock(2)
			goOn()
			n, err := page()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			_, err = put()
			stores.Refused(t, fleet.Unavailable, err)
			require.ErrorContains(t, err, "send the request again")
			require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM objects WHERE kind = 'instance'`))
			b.Put(`{"n":1}`, edit)
			require.True(t, b.Stored(`{"n":1}`))
		})
	}

	t.Run("the collection first: the same bytes are stored anew", func(t *testing.T) {
		t.Parallel()
		b, _ := aged(t)
		goOn := b.StopAt("body_chunks")
		page := stores.Background(b.collectBodiesPage)
		b.WaitsForLock(1)
		put := stores.Background(func() (fleet.Hash, error) { return b.PutBody(b.Ctx(), "other", []byte(`{"n":1}`)) })
		b.WaitsForLock(2)
		goOn()
		_, err := page()
		require.NoError(t, err)
		h, err := put()
		require.NoError(t, err)
		size, err := b.BodySize(b.Ctx(), "other", h)
		require.NoError(t, err)
		require.EqualValues(t, len(`{"n":1}`), size)
		_, err = b.BodySize(b.Ctx(), project, h)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("the bytes come between: their age is that of the last write", func(t *testing.T) {
		t.Parallel()
		b, c := aged(t)
		_, err := b.PutBody(b.Ctx(), project, []byte(`{"n":1}`))
		require.NoError(t, err)
		require.Zero(t, b.Collect(fleet.CollectBodies))
		_, err = b.PutInstance(b.Ctx(), c)
		require.NoError(t, err)
	})

	t.Run("two collections at once take each body once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.histories(100, 20)
		b.Exec(`DELETE FROM revisions`)
		var all atomic.Int64
		require.NoError(t, stores.AtOnce(4, func(int) error {
			for {
				n, more, err := b.CollectPage(b.Ctx(), fleet.CollectBodies, fleet.DefaultRetention())
				if all.Add(n); err != nil || !more {
					return err
				}
			}
		}))
		all.Add(b.Collect(fleet.CollectBodies)) // pages that the others held were passed over
		require.EqualValues(t, 2000, all.Load())
	})
}

// Whatever writers and collections do at once, what is referred to is there and whole.
func TestCollectionNeverTakesWhatIsReferredTo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keep := fleet.Retention{Bodies: 1, Uploads: 1, Newest: 1, Deliveries: 1, Operations: 1, Events: 1}
	ctx, stop := context.WithCancel(b.Ctx())
	var collections sync.WaitGroup
	var removed, refusals atomic.Int64
	for range 2 {
		collections.Go(func() {
			for ctx.Err() == nil {
				if _, err := b.Raw.Exec(ctx, `UPDATE operations SET state = 'superseded', ended_at = now() WHERE state = 'running'`); err != nil {
					return // stopped
				}
				for _, kind := range fleet.CollectedKinds() {
					n, _, err := b.CollectPage(context.WithoutCancel(ctx), kind, keep)
					if err != nil {
						t.Errorf("collect %s: %v", kind, err)
						return
					}
					if kind == fleet.CollectBodies {
						removed.Add(n)
					}
				}
			}
		})
	}
	err := stores.AtOnce(6, func(i int) error {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		for range 150 {
			if err := b.anyWrite(r, &refusals); err != nil {
				return err
			}
		}
		return nil
	})
	stop()
	collections.Wait()
	require.NoError(t, err)
	require.Positive(t, removed.Load())
	t.Logf("%d bodies collected, %d writes sent again", removed.Load(), refusals.Load())
	for _, h := range stores.Scan[[]string](b, `SELECT array_agg(DISTINCT h) FROM (
		SELECT encode(body_hash, 'hex') h FROM revisions WHERE body_hash IS NOT NULL
		UNION SELECT spec #>> '{config,hash}' FROM objects UNION SELECT spec #>> '{base,hash}' FROM template_generations) refs
		WHERE h IS NOT NULL`) {
		body, err := b.OpenBody(b.Ctx(), fleet.Hash(h))
		require.NoError(t, err, "a body that is referred to is gone")
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.EqualValues(t, h, stores.JSONOf(string(text)).Hash)
	}
}

// anyWrite makes one of the writes that refer to a body, of few bodies and few objects.
func (b *bench) anyWrite(r *rand.Rand, refusals *atomic.Int64) error {
	body := fmt.Sprintf(`{"n":%d}`, r.IntN(12))
	name := fmt.Sprintf("i%d", r.IntN(3))
	dice := r.IntN(10)
	for range 1000 {
		if _, err := b.PutBody(b.Ctx(), project, []byte(body)); err != nil {
			return err
		}
		err := b.refer(dice, name, stores.JSONOf(body))
		if fleet.KindOf(err) != fleet.Unavailable {
			return err
		}
		refusals.Add(1)
	}
	return fmt.Errorf("refused again and again")
}

func (b *bench) refer(dice int, name string, content fleet.Content) (err error) {
	key := fleet.InstanceKey(plant, fleet.InstanceName(name))
	switch dice {
	case 0:
		k := fleet.ObjectKey{Kind: fleet.KindTemplate, Name: name}
		_, err = b.Declare(b.Ctx(), stores.WriteOf(k), fleet.TemplateSpec{Base: content})
	case 1:
		_, err = b.TurnInstance(b.Ctx(), deliveries.InstanceTurn{Write: stores.WriteOf(key), Kind: fleet.OperationRollback, Revision: 1})
		if fleet.KindOf(err) == fleet.NotFound { // not declared yet, or that revision was collected
			return nil
		}
	default:
		_, err = b.PutInstance(b.Ctx(), deliveries.InstanceChange{
			Write: stores.WriteOf(key), Content: content, Release: dice > 6,
			Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilityAsync},
		})
	}
	return err
}
