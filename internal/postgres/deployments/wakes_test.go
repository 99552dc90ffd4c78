package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// woken is how often the deployment is to be woken, by the outbox.
func (b *bench) woken() int {
	return stores.Scan[int](b, `SELECT count(*) FROM outbox WHERE subject = $1`, webSub)
}

// F8, F9, F10, F19, F21, F43, F45, F58, X2: each write that concerns what runs wakes the deployment in its own transaction, and is
// undone if it cannot; a dry run and a change of labels wake nothing.
func TestWritesWake(t *testing.T) {
	t.Parallel()
	put := func(edit func(*fleet.DeploymentSpec)) func(*bench) error {
		return func(b *bench) error {
			_, err := b.PutDeployment(b.Ctx(), b.deploymentPut(asking(edit)))
			return err
		}
	}
	turn := func(kind fleet.OperationKind, edits ...func(*deployments.DeploymentTurn)) func(*bench) error {
		return func(b *bench) error {
			_, err := b.turnDeployment(kind, edits...)
			return err
		}
	}
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	b.Exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no outbox'; END $$`)
	for _, c := range []struct {
		what string
		do   func(*bench) error
	}{
		{"its ports change", put(func(s *fleet.DeploymentSpec) { s.Process.Ports = []fleet.ProcessPort{{Name: "http"}} })},
		{"the rollout is paused", func(b *bench) error { _, err := b.turnRollout(fleet.RolloutPause, 0); return err }},
		{"the rollout is cancelled", func(b *bench) error { _, err := b.turnRollout(fleet.RolloutCancel, 0); return err }},
		{"it is stopped", put(halted)},
		{"it is started", put(func(*fleet.DeploymentSpec) {})},
		{"it is scaled", turn(fleet.OperationScale, to(3))},
		{"it is restarted", turn(fleet.OperationRestart)},
		{"it is deleted", turn(fleet.OperationDestroy)},
	} {
		b.Exec(`DELETE FROM outbox`)
		before := b.viewed()
		b.Exec(`CREATE TRIGGER fail BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fail()`)
		stores.Refused(t, fleet.Internal, c.do(b))
		require.Equal(t, before, b.viewed(), "%s, and nothing of it is written", c.what)
		b.Exec(`DROP TRIGGER fail ON outbox`)
		require.NoError(t, c.do(b), c.what)
		require.Positive(t, b.woken(), c.what)
	}
	b.settles()

	b.putDeployment()
	b.settles()
	b.Exec(`DELETE FROM outbox`)
	b.putDeployment(func(p *deployments.DeploymentPut) { p.Spec.Process.Command = []string{"other"}; p.DryRun = true })
	out := b.putDeployment(func(p *deployments.DeploymentPut) { p.Labels = map[string]string{"team": "press"} })
	require.True(t, out.Changed)
	require.Nil(t, out.Operation)
	require.Zero(t, b.woken())
}
