package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
	"github.com/holdfast-io/holdfast/internal/testkit/shuffled"
)

// No rule changes what another one reads.
var _ = shuffled.Rules(acceptRules)

func rev(era, n int64, hash string) fleet.Revision {
	return fleet.Revision{
		Version: fleet.Version{Era: era, Revision: n}, Action: fleet.ActionDeploy, Enabled: true,
		Content: fleet.Content{Hash: fleet.Hash(hash)},
	}
}

func off(r fleet.Revision) fleet.Revision { r.Enabled, r.Action = false, fleet.ActionDisable; return r }

func ran(r fleet.Revision, run string) fleet.Revision { r.RunHash = fleet.Hash(run); return r }

func gone(era, n int64) fleet.Revision {
	return fleet.Revision{Version: fleet.Version{Era: era, Revision: n}, Action: fleet.ActionDelete}
}

func holding(current fleet.Revision) sqlite.Instance {
	return sqlite.Instance{HighWater: current, Current: &sqlite.Slot{Revision: current}}
}

func failed(current, high fleet.Revision) sqlite.Instance {
	in := holding(current)
	in.HighWater = high
	return in
}

// N49, N50, N53, N85, N93
func TestAccept(t *testing.T) {
	t.Parallel()
	type right struct {
		role  fleet.Role
		epoch int64
	}
	active5 := right{fleet.RoleActive, 5}
	none := sqlite.Instance{}
	for _, tc := range []struct {
		name string
		cmd  fleet.Revision
		as   right
		held sqlite.Instance
		rule string
		step step
	}{
		{"the first revision", rev(1, 1, "a"), active5, none, "newer_revision", stepApply},
		{"a delete of a name never heard of", gone(1, 1), active5, none, "newer_revision", stepApply},
		{"a newer number", rev(1, 2, "b"), active5, holding(rev(1, 1, "a")), "newer_revision", stepApply},
		{"a lower number of a newer era", rev(2, 1, "b"), active5, holding(rev(1, 9, "a")), "newer_revision", stepApply},
		{"a lower epoch", rev(1, 2, "b"), right{fleet.RoleActive, 4}, holding(rev(1, 1, "a")), "stale_epoch", stepRefuse},
		{"another role at this epoch", rev(1, 2, "b"), right{fleet.RoleStandby, 5}, none, "wrong_role", stepRefuse},
		{"another role at a higher epoch", rev(1, 2, "b"), right{fleet.RoleStandby, 6}, none, "newer_revision", stepApply},
		{"an older number", rev(1, 1, "a"), active5, holding(rev(1, 2, "b")), "older_revision", stepRefuse},
		{"an older number with the current content", rev(1, 1, "b"), active5, holding(rev(1, 2, "b")), "older_revision", stepRefuse},
		{"a higher number of an older era", rev(1, 9, "a"), active5, holding(rev(2, 1, "b")), "older_revision", stepRefuse},
		{"between current and what failed", rev(1, 2, "c"), active5, failed(rev(1, 1, "a"), rev(1, 3, "b")), "older_revision", stepRefuse},
		{"the same number with another hash", rev(1, 2, "x"), active5, holding(rev(1, 2, "b")), "same_revision_other_hash", stepConflict},
		{"the same number with another run hash", ran(rev(1, 2, "b"), "r"), active5, holding(rev(1, 2, "b")), "same_revision_other_hash", stepConflict},
		{"the same number, disabled", off(rev(1, 2, "b")), active5, holding(rev(1, 2, "b")), "same_revision_other_hash", stepConflict},
		{"the failed number with another hash", rev(1, 3, "x"), active5, failed(rev(1, 1, "a"), rev(1, 3, "b")), "same_revision_other_hash", stepConflict},
		{"a duplicate", rev(1, 2, "b"), active5, holding(rev(1, 2, "b")), "same_revision", stepConfirm},
		{"a duplicate of the current one after a newer failed", rev(1, 1, "a"), active5, failed(rev(1, 1, "a"), rev(1, 3, "b")), "same_revision", stepConfirm},
		{"a retry of what failed", rev(1, 3, "b"), active5, failed(rev(1, 1, "a"), rev(1, 3, "b")), "newer_revision", stepApply},
		{"equal content under a higher number", rev(1, 5, "b"), active5, holding(rev(1, 2, "b")), "equal_content", stepRenumber},
		{"the current content again after a newer failed", rev(1, 5, "a"), active5, failed(rev(1, 1, "a"), rev(1, 3, "b")), "equal_content", stepRenumber},
		{"equal content, now disabled", off(rev(1, 5, "b")), active5, holding(rev(1, 2, "b")), "newer_revision", stepApply},
		{"equal content, another command", ran(rev(1, 5, "b"), "r"), active5, holding(rev(1, 2, "b")), "newer_revision", stepApply},
		{"a delete", gone(1, 3), active5, holding(rev(1, 2, "b")), "newer_revision", stepApply},
		{"a delete of what is deleted", gone(1, 4), active5, holding(gone(1, 3)), "equal_content", stepRenumber},
		{"a new revision after a delete", rev(1, 4, "b"), active5, holding(gone(1, 3)), "newer_revision", stepApply},
		{"an older one after a delete", rev(1, 2, "b"), active5, holding(gone(1, 3)), "older_revision", stepRefuse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := fleet.RefreshDeploymentCommand{Revision: tc.cmd, Role: tc.as.role, Epoch: tc.as.epoch}
			meta := sqlite.Meta{Right: sqlite.Right{Role: fleet.RoleActive, Epoch: 5}}
			v := accept(cmd, tc.held, meta)
			require.Equal(t, verdict{tc.rule, tc.step}, v)
			want := map[step]fleet.Kind{stepRefuse: fleet.Stale, stepConflict: fleet.Conflict}[tc.step]
			if err := v.err(cmd, tc.held, meta); want == "" {
				require.NoError(t, err)
			} else {
				require.Equal(t, want, fleet.KindOf(err))
				require.Contains(t, err.Error(), tc.rule)
			}
		})
	}
}
