package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// gadgetSpec is of a plain kind that the store has no row for.
type gadgetSpec struct {
	Of []fleet.ObjectKey `json:"of"`
}

func (s gadgetSpec) References() []fleet.Reference {
	refs := make([]fleet.Reference, len(s.Of))
	for i, k := range s.Of {
		refs[i] = fleet.Reference{Key: k, Field: fmt.Sprintf("/of/%d", i)}
	}
	return refs
}

func gadgetKey(name string) fleet.ObjectKey { return fleet.ObjectKey{Kind: "gadget", Name: name} }

func (b *bench) gadget(name string, of ...fleet.ObjectKey) error {
	_, err := b.Declare(b.Ctx(), stores.WriteOf(gadgetKey(name)), gadgetSpec{of})
	return err
}

func (b *bench) remove(k fleet.ObjectKey) error {
	_, err := b.DeleteDeclared(b.Ctx(), stores.WriteOf(k))
	return err
}

// N107: what an object of a plain kind refers to is not deleted.
func TestReferences(t *testing.T) {
	t.Parallel()
	pool := func(b *bench, name string) fleet.ObjectKey {
		key := fleet.ObjectKey{Kind: fleet.KindPool, Name: name}
		_, err := b.Declare(t.Context(), stores.WriteOf(key), fleet.PoolSpec{})
		require.NoError(t, err)
		return key
	}

	t.Run("refuses a deletion and names the referrer, until the last is gone", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		gpu, cpu := pool(b, "gpu"), pool(b, "cpu")
		require.NoError(t, b.gadget("g1", gpu, gpu, cpu))
		err := b.remove(gpu)
		stores.Refused(t, fleet.IllegalState, err)
		require.ErrorContains(t, err, "gadget/g1 still refers to pool/gpu")
		require.NoError(t, b.gadget("g2", gadgetKey("g1"), gpu))
		require.ErrorContains(t, b.remove(gpu), "2 objects still refer to pool/gpu, among them gadget/g1")
		stores.Refused(t, fleet.IllegalState, b.remove(gadgetKey("g1")))

		require.NoError(t, b.gadget("g1", cpu, gadgetKey("g1")))
		require.ErrorContains(t, b.remove(gpu), "gadget/g2 still refers to pool/gpu")
		require.NoError(t, b.remove(gadgetKey("g2")))
		require.NoError(t, b.remove(gpu))
		stores.Refused(t, fleet.NotFound, b.gadget("g1", gpu))
		stores.Refused(t, fleet.IllegalState, b.remove(cpu))
		require.NoError(t, b.remove(gadgetKey("g1")), "that it refers to itself does not count")
		require.NoError(t, b.remove(cpu))
	})

	t.Run("holds for what ends by an operation", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		_, err := b.PutBody(t.Context(), project, []byte(`{}`))
		require.NoError(t, err)
		put := deployments.DeploymentPut{Write: stores.WriteOf(fleet.DeploymentKey("web")), Definition: stores.JSONOf(`{}`)}
		_, err = b.PutDeployment(t.Context(), put)
		require.NoError(t, err)
		require.NoError(t, b.gadget("g1", pressKey, put.Key))
		_, err = b.TurnInstance(t.Context(), stores.TurnOf(fleet.OperationDelete))
		require.ErrorContains(t, err, "gadget/g1 still refers to instance/plant/press")
		_, err = b.TurnDeployment(t.Context(), deployments.DeploymentTurn{Write: put.Write, Kind: fleet.OperationDestroy})
		require.ErrorContains(t, err, "gadget/g1 still refers to deployment/web")
		require.NoError(t, b.remove(gadgetKey("g1")))
		b.Turn(fleet.OperationDelete)
		stores.Refused(t, fleet.NotFound, b.gadget("g1", pressKey))
	})

	t.Run("holds while both are written at once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		for i := range 20 {
			key := pool(b, fmt.Sprint("p", i))
			errs := make([]error, 2)
			require.NoError(t, stores.AtOnce(2, func(n int) error {
				if n == 0 {
					errs[0] = b.gadget(fmt.Sprint("g", i), key)
				} else {
					errs[1] = b.remove(key)
				}
				return nil
			}))
			if errs[0] == nil {
				stores.Refused(t, fleet.IllegalState, errs[1])
				continue
			}
			stores.Refused(t, fleet.NotFound, errs[0])
			require.NoError(t, errs[1])
		}
	})
}
