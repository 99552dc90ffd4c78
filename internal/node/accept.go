package node

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// step is what a node does with a command.
type step string

const (
	stepRefuse   step = "refuse"
	stepConflict step = "conflict"
	stepConfirm  step = "confirm"  // the node holds it already
	stepRenumber step = "renumber" // only the number is new
	stepApply    step = "apply"
)

// verdict is the rule that matched first, and its step.
type verdict struct {
	Rule string
	Step step
}

// err is the refusal of a verdict, nil if it accepts.
func (v verdict) err(c fleet.RefreshDeploymentCommand, held sqlite.Instance, meta sqlite.Meta) error {
	switch v.Step {
	case stepRefuse:
		return stale(staleBy(v.Rule), "%s: revision %d.%d as %s at epoch %d; the node holds up to %d.%d and is %s at epoch %d", v.Rule,
			c.Revision.Era, c.Revision.Version.Revision, c.Role, c.Epoch,
			held.HighWater.Era, held.HighWater.Version.Revision, meta.Role, meta.Epoch)
	case stepConflict:
		return fleet.Errorf(fleet.Conflict, "%s: revision %d.%d arrived before with other content", v.Rule,
			c.Revision.Era, c.Revision.Version.Revision).
			WithHint("the region's database may have been restored: run holdfast admin raise-era")
	case stepConfirm, stepRenumber, stepApply:
		return nil
	}
	return nil
}

type acceptRule struct {
	name string
	when func(c fleet.RefreshDeploymentCommand, held sqlite.Instance, meta sqlite.Meta) bool
	then step
}

// acceptRules are ordered, the first match wins. A duplicate of the current revision comes before the
// comparison with the high-water mark: it changes nothing, whatever failed since.
var acceptRules = []acceptRule{
	{"stale_epoch", epochLower, stepRefuse},
	{"wrong_role", roleDiffers, stepRefuse},
	{"same_revision", isCurrent, stepConfirm},
	{"older_revision", belowHighWater, stepRefuse},
	{"same_revision_other_hash", sameNumberOtherContent, stepConflict},
	{"equal_content", currentIsSame, stepRenumber},
	{"newer_revision", always, stepApply},
}

// accept decides about a command from what the node holds. A command with a higher epoch than the node's brings
// its new role; a revision that failed may be retried under the same number.
func accept(c fleet.RefreshDeploymentCommand, held sqlite.Instance, meta sqlite.Meta) verdict {
	for _, r := range acceptRules {
		if r.when(c, held, meta) {
			return verdict{r.name, r.then}
		}
	}
	return verdict{"unmatched", stepRefuse}
}

func epochLower(c fleet.RefreshDeploymentCommand, _ sqlite.Instance, meta sqlite.Meta) bool {
	return c.Epoch < meta.Epoch
}

func roleDiffers(c fleet.RefreshDeploymentCommand, _ sqlite.Instance, meta sqlite.Meta) bool {
	return c.Epoch == meta.Epoch && meta.Role != "" && c.Role != meta.Role
}

func isCurrent(c fleet.RefreshDeploymentCommand, held sqlite.Instance, _ sqlite.Meta) bool {
	return held.Current != nil && held.Current.Version == c.Revision.Version && held.Current.Same(c.Revision)
}

func belowHighWater(c fleet.RefreshDeploymentCommand, held sqlite.Instance, _ sqlite.Meta) bool {
	return held.HighWater.Newer(c.Revision.Version)
}

func sameNumberOtherContent(c fleet.RefreshDeploymentCommand, held sqlite.Instance, _ sqlite.Meta) bool {
	return held.HighWater.Version == c.Revision.Version && !held.HighWater.Same(c.Revision)
}

func currentIsSame(c fleet.RefreshDeploymentCommand, held sqlite.Instance, _ sqlite.Meta) bool {
	return held.Current != nil && held.Current.Same(c.Revision)
}

func always(fleet.RefreshDeploymentCommand, sqlite.Instance, sqlite.Meta) bool { return true }

// check refuses a command that the node could never carry out, whatever it holds.
func check(c fleet.RefreshDeploymentCommand) error {
	if err := fleet.ValidateName("/instance", string(c.Instance)); err != nil {
		return err
	}
	r := c.Revision
	if r.Era < 0 || r.Version.Revision < 1 {
		return fleet.Errorf(fleet.Invalid, "invalid revision number: want 1 or more").At("/revision")
	}
	if err := checkRole(c.Role); err != nil {
		return err
	}
	switch r.Action {
	case fleet.ActionDelete:
		if r.Content.Hash != "" || r.RunHash != "" || r.Enabled {
			return fleet.Errorf(fleet.Invalid, "content is not allowed for a delete").At("/revision")
		}
		return nil
	case fleet.ActionDeploy, fleet.ActionEnable, fleet.ActionDisable:
		return checkContent(c)
	}
	return fleet.Errorf(fleet.Invalid, "unknown action %.20q; use deploy, enable, disable or delete", r.Action).At("/revision/action")
}

func checkRole(role fleet.Role) error {
	switch role {
	case fleet.RoleActive, fleet.RoleStandby, fleet.RoleWorker:
		return nil
	}
	return fleet.Errorf(fleet.Invalid, "unknown role %.20q; use active, standby or worker", role).At("/role")
}

func checkContent(c fleet.RefreshDeploymentCommand) error {
	r := c.Revision
	if err := fleet.ValidateHash("/revision/content/hash", r.Content.Hash); err != nil {
		return err
	}
	if r.RunHash != "" {
		if err := fleet.ValidateHash("/revision/runHash", r.RunHash); err != nil {
			return err
		}
	}
	if r.Content.Size < 0 {
		return fleet.Errorf(fleet.Invalid, "invalid size: want 0 or more").At("/revision/content/size")
	}
	if r.Content.Kind != fleet.ContentJSON && r.Content.Kind != fleet.ContentArtifact {
		return fleet.Errorf(fleet.Invalid, "unknown kind of content %.20q; use json or artifact", r.Content.Kind).At("/revision/content/kind")
	}
	return nil
}
