package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fakeGaps is one page of comparisons, and what was done about each.
type fakeGaps struct {
	page []fleet.Comparison
	did  []string
	owed int
}

var _ gapStore = (*fakeGaps)(nil)

func (f *fakeGaps) ComparePage(context.Context, fleet.NodeName, string, int32) ([]fleet.Comparison, string, error) {
	return f.page, "", nil
}

func (f *fakeGaps) do(what string, name fleet.InstanceName) (string, error) {
	f.did = append(f.did, what+" "+string(name))
	if name == "moved" {
		return "", nil
	}
	return fleet.InstanceSubject("plant", name), nil
}

func (f *fakeGaps) Owe(_ context.Context, _ fleet.NodeName, name fleet.InstanceName, _ fleet.Version) (string, error) {
	return f.do("owe", name)
}

func (f *fakeGaps) ReleaseAgain(_ context.Context, _ fleet.NodeName, name fleet.InstanceName, _ fleet.Version) (string, error) {
	return f.do("release", name)
}

func (f *fakeGaps) SettleAgain(_ context.Context, _ fleet.NodeName, name fleet.InstanceName, v fleet.Version) (string, error) {
	if v.Revision != 6 {
		return f.do("settle another revision of", name)
	}
	return f.do("settle", name)
}

func (f *fakeGaps) ServeOwed(_ context.Context, _ fleet.NodeName, _ time.Time, limit int32) ([]string, error) {
	n := min(f.owed, int(limit))
	f.owed -= n
	return make([]string, n), nil
}

type wakes []string

func (w *wakes) Wake(_ context.Context, subject string) error {
	*w = append(*w, subject)
	return nil
}

// N54, N56, X28: each gap has its repair, and only what was repaired is woken.
func TestReconcilePage(t *testing.T) {
	t.Parallel()
	at := func(n int64) fleet.Revision { return fleet.Revision{Version: fleet.Version{Era: 1, Revision: n}} }
	holds := func(name fleet.InstanceName, n int64) fleet.Comparison {
		return fleet.Comparison{
			Instance: name, Snapshot: at(5), Desired: at(6), Active: true,
			Held: fleet.Held{Known: true, Revision: at(n), HighWater: at(n).Version},
		}
	}
	store, woken := &fakeGaps{page: []fleet.Comparison{
		holds("level", 5), holds("behind", 4), holds("ahead", 7), holds("applied", 6), holds("moved", 7),
	}}, &wakes{}
	out, err := (&Reconciles{Store: store, Entities: woken}).Page(t.Context(), ReconcilePage{Node: "plant-a"})
	require.NoError(t, err)
	require.Equal(t, []string{"owe behind", "release ahead", "settle applied", "release moved"}, store.did)
	require.Equal(t, wakes{"instance.plant.behind", "instance.plant.ahead", "instance.plant.applied"}, *woken)
	require.Equal(t, ReconciledPage{Woken: 3}, out)
}

// N101: what is owed is started in pages, as long as there is more.
func TestServeOwed(t *testing.T) {
	t.Parallel()
	store, woken := &fakeGaps{owed: pageOfActions + 1}, &wakes{}
	r := &Reconciles{Store: store, Entities: woken}
	page, err := r.Serve(t.Context(), OwedPage{Node: "plant-a"})
	require.NoError(t, err)
	require.Equal(t, ServedPage{Woken: pageOfActions, More: true}, page)
	page, err = r.Serve(t.Context(), OwedPage{Node: "plant-a"})
	require.NoError(t, err)
	require.Equal(t, ServedPage{Woken: 1}, page)
	require.Len(t, *woken, pageOfActions+1)
}
