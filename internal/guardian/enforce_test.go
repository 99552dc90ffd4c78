package guardian

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// X21: whichever of agent and guardian is paused or killed, nothing runs at the deadline.
// Commands here ignore SIGTERM, and one of them left group and session.
func TestNothingOutlivesTheLease(t *testing.T) {
	const span = 8 * time.Second
	t.Run("the guardian alone ends it", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		lease := leaseFor(span)
		require.NoError(t, r.Lease(t.Context(), lease))
		start(t, r, spec)
		w.goesOn(SinceBoot())
		st := status(t, r, Ended)
		require.Equal(t, ReasonLeaseEnded, st.Reason)
		require.False(t, st.Running)
		require.Less(t, w.last(), lease.end(0).Gone)
		require.Greater(t, w.last(), lease.end(200*time.Millisecond).Stop, "it had its grace")
		cleared(t, r)
	})
	t.Run("a paused guardian's is ended by the agent", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		enforced(t, r)
		spec, w := witnessed(t, r)
		lease := leaseFor(span)
		require.NoError(t, r.Lease(t.Context(), lease))
		st := start(t, r, spec)
		paused(t, st.GuardianPID)
		w.goesOn(SinceBoot())
		require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
		require.Less(t, w.last(), lease.end(0).Gone)
		cleared(t, r)
	})
	t.Run("what a killed guardian left is ended by the agent", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		enforced(t, r)
		spec, w := witnessed(t, r)
		lease := leaseFor(span)
		require.NoError(t, r.Lease(t.Context(), lease))
		st := start(t, r, spec)
		w.goesOn(SinceBoot())
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.PID) }, "the command outlives its guardian")
		was := w.lastOf("stray")
		eventually(t, func() bool { return w.lastOf("stray") > was }, "else this test proves nothing")
		require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
		require.Less(t, w.last(), lease.end(0).Gone)
		cleared(t, r)
	})
	for name, sig := range map[string]unix.Signal{"paused": unix.SIGSTOP, "killed": unix.SIGKILL} {
		t.Run("a "+name+" agent's is ended by the guardian", func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			spec, w := witnessed(t, r)
			agent := startAgent(t, order{Root: r.Root, Executable: r.Executable, Spec: spec, Runs: span, Enforce: true})
			lease, err := r.lease()
			require.NoError(t, err)
			sendTo(t, agent.Process.Pid, sig)
			w.goesOn(SinceBoot())
			require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
			require.Less(t, w.last(), lease.end(0).Gone)
			cleared(t, r)
		})
	}
	t.Run("a new agent keeps the deadline that the last one wrote", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		startByAgent(t, order{Root: r.Root, Executable: r.Executable, Spec: spec, Runs: span})()
		lease, err := r.lease()
		require.NoError(t, err)
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Len(t, listed, 1)
		paused(t, listed[0].GuardianPID)
		w.goesOn(SinceBoot())
		enforced(t, r)
		status(t, r, Ended)
		require.Less(t, w.last(), lease.end(0).Gone)
	})
	t.Run("an earlier deadline and the first after none are kept too", func(t *testing.T) {
		t.Parallel()
		for _, first := range []Lease{NoDeadline(), leaseFor(time.Hour)} {
			r := setup(t)
			spec, w := witnessed(t, r)
			require.NoError(t, r.Lease(t.Context(), first))
			start(t, r, spec)
			w.goesOn(SinceBoot())
			lease := leaseFor(span)
			require.NoError(t, r.Lease(t.Context(), lease))
			status(t, r, Ended)
			require.Less(t, w.last(), lease.end(0).Gone)
		}
	})
	t.Run("a new agent tells what the last one was killed over", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		start(t, r, spec)
		w.goesOn(SinceBoot())
		lease := leaseFor(span)
		_, err := r.writeLease(lease) // and no word to any guardian
		require.NoError(t, err)
		next := &Runtime{Root: r.Root, Executable: r.Executable, Log: r.Log}
		require.NoError(t, next.Lease(t.Context(), lease))
		status(t, r, Ended)
		require.Less(t, w.last(), lease.end(0).Gone)
	})
	t.Run("a guardian that hangs does not keep the lease from being written", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		enforced(t, r)
		spec, w := witnessed(t, r)
		paused(t, start(t, r, spec).GuardianPID)
		lease := leaseFor(span)
		require.NoError(t, r.Lease(t.Context(), lease))
		require.Less(t, SinceBoot(), lease.end(0).Kill)
		status(t, r, Ended)
		require.Less(t, w.last(), lease.end(0).Gone)
	})
	t.Run("a lease that is taken away or garbled ends it", func(t *testing.T) {
		t.Parallel()
		for _, spoil := range []func(path string) error{
			os.Remove, func(path string) error { return os.Truncate(path, 20) },
		} {
			for _, both := range []bool{true, false} {
				r := setup(t)
				spec, _ := witnessed(t, r)
				st := start(t, r, spec)
				if both {
					enforced(t, r)
					paused(t, st.GuardianPID)
				}
				require.NoError(t, spoil(filepath.Join(r.Root, leaseFile)))
				if !both {
					require.NoError(t, r.tellAll(t.Context())) // else it finds out by itself, later
				}
				require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
				cleared(t, r)
			}
		}
	})
}

// X21: both were paused, which is outside the promise; what wakes up kills at once.
func TestWakesAfterTheLease(t *testing.T) {
	t.Run("a guardian kills before anything else", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		lease := leaseFor(8 * time.Second)
		require.NoError(t, r.Lease(t.Context(), lease))
		st := start(t, r, spec)
		paused(t, st.GuardianPID)
		until(t, lease.Deadline)
		w.goesOn(lease.Deadline) // nobody else keeps the deadline here
		woken := SinceBoot()
		sendTo(t, st.GuardianPID, unix.SIGCONT)
		require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
		require.Less(t, w.last(), woken+2*time.Second)
		cleared(t, r)
	})
	t.Run("a guardian does not restart what ended meanwhile", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		lease := leaseFor(8 * time.Second)
		require.NoError(t, r.Lease(t.Context(), lease))
		st := start(t, r, spec)
		w.goesOn(SinceBoot())
		paused(t, st.GuardianPID)
		sendTo(t, st.PID, unix.SIGKILL)
		until(t, lease.Deadline)
		sendTo(t, st.GuardianPID, unix.SIGCONT)
		require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
		require.Equal(t, 1, w.starts())
		cleared(t, r)
	})
	t.Run("an agent kills what a paused guardian has", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		agent := startAgent(t, order{Root: r.Root, Executable: r.Executable, Spec: spec, Runs: 8 * time.Second, Enforce: true})
		lease, err := r.lease()
		require.NoError(t, err)
		st := status(t, r, Live)
		paused(t, agent.Process.Pid)
		paused(t, st.GuardianPID)
		w.goesOn(lease.Deadline)
		sendTo(t, agent.Process.Pid, unix.SIGCONT)
		require.Equal(t, ReasonLeaseEnded, status(t, r, Ended).Reason)
		cleared(t, r)
	})
}

// X21
func TestRenew(t *testing.T) {
	t.Run("what is renewed runs on undisturbed, whatever its grace", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		enforced(t, r)
		spec, w := witnessed(t, r)
		spec.Run.StopSeconds = 1000
		short := func() Lease { return Lease{Deadline: SinceBoot() + 6*time.Second, TTL: 6 * time.Second} }
		require.NoError(t, r.Lease(t.Context(), short()))
		st := start(t, r, spec)
		enough := SinceBoot() + 9*time.Second
		for next := SinceBoot(); SinceBoot() < enough; next += 2 * time.Second {
			until(t, next)
			require.NoError(t, r.Lease(t.Context(), short()))
		}
		seen := status(t, r, Live)
		require.Equal(t, st.PID, seen.PID)
		require.Empty(t, seen.Reason)
		require.Equal(t, 1, w.starts())
	})
	t.Run("after the stop began the guardian starts it again when nothing is left", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		file := filepath.Join(t.TempDir(), "starts")
		spec := shell(t, `trap 'echo stopping; while ! [ -e go ]; do sleep 0.02; done; exit 0' TERM; "$0" exclusive "$1" & echo ready; while :; do sleep 0.05; done`)
		spec.Run.Command = append(spec.Run.Command, r.Executable, file)
		require.NoError(t, r.Lease(t.Context(), leaseFor(testTTL/4+2*time.Second)))
		st := start(t, r, spec)
		printed(t, r, "stopping")
		seen := status(t, r, Live)
		require.Equal(t, ReasonLeaseEnded, seen.Reason)
		require.True(t, seen.Running)
		require.NoError(t, r.Lease(t.Context(), leaseFor(time.Hour)))
		require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "go"), nil, 0o600))
		eventually(t, func() bool {
			again := status(t, r, Live)
			return again.Running && again.PID != st.PID && again.Reason == "" && again.Restarts == 1
		}, "not started again")
		require.NotContains(t, readFile(t, file), "twice")
		require.Equal(t, st.GuardianPID, status(t, r, Live).GuardianPID)
	})
	t.Run("after the deadline only the agent starts it again, under the same name", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		enforced(t, r)
		spec, w := witnessed(t, r)
		require.NoError(t, r.Lease(t.Context(), leaseFor(8*time.Second)))
		start(t, r, spec)
		status(t, r, Ended)
		require.NoError(t, r.Lease(t.Context(), leaseFor(time.Hour)))
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, Ended, listed[0].Guardian)
		require.Equal(t, spec.Labels, listed[0].Labels)
		again := start(t, r, spec)
		require.Empty(t, again.Reason)
		w.goesOn(SinceBoot())
		require.Equal(t, 2, w.starts())
	})
	t.Run("what was stopped as asked meanwhile is not", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		spec.Run.StopSeconds = 1000
		require.NoError(t, r.Lease(t.Context(), leaseFor(testTTL/4+2*time.Second)))
		start(t, r, spec)
		eventually(t, func() bool { return status(t, r, Live).Reason == ReasonLeaseEnded }, "the stop does not begin")
		require.NoError(t, r.Lease(t.Context(), leaseFor(time.Hour)))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		_, listed, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.False(t, listed)
		require.Equal(t, 1, w.starts())
	})
	t.Run("a stop or a removal forgets what ended", func(t *testing.T) {
		t.Parallel()
		for _, forget := range []func(*Runtime) error{
			func(r *Runtime) error { return r.Stop(t.Context(), "line-7") },
			func(r *Runtime) error { return r.Remove(t.Context(), "line-7") },
		} {
			r := setup(t)
			spec, _ := witnessed(t, r)
			require.NoError(t, r.Lease(t.Context(), leaseFor(time.Hour)))
			start(t, r, spec)
			require.NoError(t, r.Lease(t.Context(), Lease{Deadline: SinceBoot(), TTL: testTTL}))
			status(t, r, Ended)
			require.NoError(t, forget(r))
			listed, err := r.List(t.Context())
			require.NoError(t, err)
			require.Empty(t, listed)
		}
	})
}
