package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C72, C84: a drain has 30 s unless it says otherwise, and says who asked.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	require.Equal(t, 30*time.Second, fleet.DefaultDrain)
	longest := int64(24 * time.Hour / time.Second)
	for name, c := range map[string]struct {
		order, want fleet.DrainOrder
		wrong       string
	}{
		"nothing said":          {fleet.DrainOrder{}, fleet.DrainOrder{Reason: "requested by ann", DeadlineSeconds: 30}, ""},
		"all said":              {fleet.DrainOrder{Reason: "new disk", DeadlineSeconds: 1, Force: true}, fleet.DrainOrder{Reason: "new disk", DeadlineSeconds: 1, Force: true}, ""},
		"the longest":           {fleet.DrainOrder{Reason: "x", DeadlineSeconds: longest}, fleet.DrainOrder{Reason: "x", DeadlineSeconds: longest}, ""},
		"longer than that":      {fleet.DrainOrder{DeadlineSeconds: longest + 1}, fleet.DrainOrder{}, "/deadlineSeconds"},
		"less than nothing":     {fleet.DrainOrder{DeadlineSeconds: -1}, fleet.DrainOrder{}, "/deadlineSeconds"},
		"the longest reason":    {fleet.DrainOrder{Reason: strings.Repeat("x", 1024)}, fleet.DrainOrder{Reason: strings.Repeat("x", 1024), DeadlineSeconds: 30}, ""},
		"a reason that is long": {fleet.DrainOrder{Reason: strings.Repeat("x", 1025)}, fleet.DrainOrder{}, "/reason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.order.Checked("ann")
			if c.wrong != "" {
				require.Equal(t, fleet.Invalid, fleet.KindOf(err))
				var e *fleet.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, c.wrong, e.Field)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
