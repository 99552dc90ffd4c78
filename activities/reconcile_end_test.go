package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fakePasses takes or refuses the end of a comparison.
type fakePasses struct {
	passStore
	err   error
	ended []fleet.ReconcileEnd
}

func (f *fakePasses) EndReconcile(_ context.Context, e fleet.ReconcileEnd) error {
	f.ended = append(f.ended, e)
	return f.err
}

type doorsTold []string

func (d *doorsTold) TellDoors(_ context.Context, subject string) error {
	*d = append(*d, subject)
	return nil
}

// X22: an end is counted when it was written down, and only then.
func TestReconcileEnd(t *testing.T) {
	t.Parallel()
	end := fleet.ReconcileEnd{Node: "plant-a", State: fleet.OperationSucceeded, Fetched: 3}
	var counted []fleet.ReconcileEnd
	passes, told := &fakePasses{err: fleet.Errorf(fleet.Unavailable, "away")}, &doorsTold{}
	r := &Reconciles{Passes: passes, Doors: told, Ended: func(e fleet.ReconcileEnd) { counted = append(counted, e) }}
	require.Error(t, r.End(t.Context(), end))
	require.Empty(t, counted)
	passes.err = nil
	require.NoError(t, r.End(t.Context(), end))
	require.Equal(t, []fleet.ReconcileEnd{end}, counted)
	require.Equal(t, doorsTold{"node.plant-a"}, *told)
	r.Ended = nil
	require.NoError(t, r.End(t.Context(), end))
}
