package guardian

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit/suspended"
)

// X21: the clock of leases counts suspend. The agent of these and its guardian live in a time
// namespace in which the machine slept for a day.
func TestLeaseCountsSuspend(t *testing.T) {
	const slept = 24 * time.Hour
	until := func(t *testing.T, runs time.Duration) (*Runtime, []string) {
		r := setup(t)
		r.Root = t.TempDir() // times of its processes are none of ours
		o, err := json.Marshal(order{
			Root: r.Root, Executable: r.Executable, LifetimeSelf: true, Spec: shell(t, "exec sleep 1000"), Deadline: SinceBoot() + runs,
		})
		require.NoError(t, err)
		return r, []string{r.Executable, "agent", string(o)}
	}
	for name, c := range map[string]struct {
		deadline time.Duration
		says     string
	}{
		"a deadline that passed meanwhile has passed for the guardian": {slept - time.Hour, "stale: "},
		"one beyond it has not": {slept + time.Hour, "started\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, agent := until(t, c.deadline)
			cmd := suspended.Command(t, slept, agent...)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			said, err := bufio.NewReader(stdout).ReadString('\n')
			endAgent(cmd) // one that started stays
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(said, c.says), said)
			eventually(t, func() bool { return len(left(t, r)) == 0 }, "its guardian is left")
		})
	}
	// Its alarms are set to instants of that clock: one on another clock would ring a day late. This
	// takes as long as a lease of the tests it runs, beside them.
	for name, test := range map[string]string{
		"the guardian's alarm rings by it": "the_guardian_alone_ends_it", "the agent's too": "a_paused_guardian's_is_ended_by_the_agent",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self := setup(t).Executable
			out, err := suspended.Command(t, slept, self, "-test.v", "-test.run=^TestNothingOutlivesTheLease$/^"+test+"$").CombinedOutput()
			require.NoError(t, err, string(out))
			require.Contains(t, string(out), "--- PASS: TestNothingOutlivesTheLease/"+test)
		})
	}
}
