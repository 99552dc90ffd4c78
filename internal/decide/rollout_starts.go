package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// starts: nothing of the deployment was to run when the rollout began, or it had been given up. Nothing of the stable revision is
// created before a return.
func (r *rollout) starts() bool { return r.BeganIn != "" && r.BeganIn != fleet.DeploymentRunning }

// begin moves a deployment that the rollout starts. One that was given up is so again if the return fails.
func (r *rollout) begin(c *deploymentCase) {
	if !r.starts() {
		return
	}
	if c.state == fleet.DeploymentError {
		c.on(fleet.DeploymentUpdated)
	}
	c.on(fleet.DeploymentBegun)
	if r.to().reached() {
		c.on(fleet.DeploymentAvailable)
	}
	if r.state == fleet.RolloutFailed && r.plan.Reason == ReasonReturnIncomplete && r.BeganIn == fleet.DeploymentError {
		c.on(fleet.DeploymentGivenUp)
		c.plan.Create = 0
	}
}
