package fleet_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19, M40: what a peer sends is checked before Postgres sees it.
func TestCopyChange(t *testing.T) {
	t.Parallel()
	good := func() fleet.CopyChange {
		key := fleet.InstanceKey("plant-1", "press")
		return fleet.CopyChange{
			Key: fleet.CopyKey{Region: "eu", ObjectKey: key}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 7},
			Object: &fleet.Object{
				ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one", Generation: 1, Labels: map[string]string{"a": "b"},
				Spec: json.RawMessage(`{"a":1}`), Syncing: json.RawMessage(`{"owningRegion":"eu","regions":["eu"]}`),
			},
		}
	}
	require.NoError(t, good().Validate())
	gone := good()
	gone.Object, gone.End = nil, fleet.CopyDeleted
	require.NoError(t, gone.Validate())
	for name, change := range map[string]func(*fleet.CopyChange){
		"a kind of a newer region": func(c *fleet.CopyChange) { c.Key.Kind = "gadget" },
		"no region":                func(c *fleet.CopyChange) { c.Key.Region = "" },
		"a name with NUL":          func(c *fleet.CopyChange) { c.Key.Name = "a\x00b" },
		"an instance of no site":   func(c *fleet.CopyChange) { c.Key.Scope = "" },
		"a project that is none":   func(c *fleet.CopyChange) { c.Object.Project = "../x" },
		"no spec":                  func(c *fleet.CopyChange) { c.Object.Spec = nil },
		"a null spec":              func(c *fleet.CopyChange) { c.Object.Spec = json.RawMessage(`null`) },
		"a spec with NUL":          func(c *fleet.CopyChange) { c.Object.Spec = json.RawMessage(`{"a":"\u0000"}`) },
		"a syncing that is a list": func(c *fleet.CopyChange) { c.Object.Syncing = json.RawMessage(`[]`) },
		"a uid that is none":       func(c *fleet.CopyChange) { c.Object.UID = "x" },
		"a label with NUL":         func(c *fleet.CopyChange) { c.Object.Labels["x"] = "\x00" },
		"a creator with NUL":       func(c *fleet.CopyChange) { c.Object.CreatedBy = "\x00" },
		"no generation":            func(c *fleet.CopyChange) { c.Object.Generation = 0 },
		"no owner epoch":           func(c *fleet.CopyChange) { c.Version.OwnerEpoch = 0 },
		"a last owner with NUL":    func(c *fleet.CopyChange) { c.TookOver = &fleet.TookOver{Region: "\x00", OwnerEpoch: 1, Number: 1} },
		"an earlier owner with NUL": func(c *fleet.CopyChange) {
			c.TookOver = fleet.TookOver{Region: "us", OwnerEpoch: 2, Number: 1}.After(&fleet.TookOver{Region: "\x00", OwnerEpoch: 1, Number: 1})
		},
		"a negative number": func(c *fleet.CopyChange) { c.Version.Number = -1 },
	} {
		c := good()
		change(&c)
		require.Equal(t, fleet.Invalid, fleet.KindOf(c.Validate()), name)
	}
}

// M38: the owners of an object are remembered, the last eight of them.
func TestTookOver(t *testing.T) {
	t.Parallel()
	var last *fleet.TookOver
	for epoch := range int64(20) {
		last = fleet.TookOver{Region: fleet.RegionName(fmt.Sprintf("r%d", epoch%9)), OwnerEpoch: epoch, Number: 1}.After(last)
	}
	var epochs []int64
	for t := last; t != nil; t = t.Earlier {
		epochs = append(epochs, t.OwnerEpoch)
	}
	require.Equal(t, []int64{19, 18, 17, 16, 15, 14, 13, 12}, epochs)
	require.Equal(t, int64(18), last.Of("r0").OwnerEpoch)
	require.Nil(t, last.Of("r2"), "forgotten")
	require.Nil(t, (*fleet.TookOver)(nil).Of("r0"))
}
