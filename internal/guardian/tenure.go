package guardian

import (
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// tenure is what a guardian knows of the lease under which it runs its command.
type tenure struct {
	root, boot string
	grace      time.Duration
	alarm      *alarm
	log        *slog.Logger

	lease Lease
	// due is when to look again: nothing is before it.
	due time.Duration
}

// newTenure is nil for what runs without a lease.
func newTenure(dir string, asked launch, log *slog.Logger) (*tenure, error) {
	if !asked.Leased {
		return nil, nil
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &tenure{root: filepath.Dir(dir), boot: boot, grace: asked.stopGrace(), alarm: alarm, log: log}, nil
}

// look reads the lease and says what is due. What cannot be read now leaves what was read
// last in force; what is no lease ends everything.
func (t *tenure) look() (decide.LeaseStep, decide.LeaseEnd) {
	lease, err := readLease(t.root, t.boot)
	switch {
	case err == nil:
		t.lease = lease
	case errors.Is(err, errNoRight):
		t.log.Error("the right to run is gone", "err", err)
		t.lease = Lease{}
	default:
		t.log.Error("lease not read", "err", err)
	}
	now, end := SinceBoot(), t.lease.end(t.grace)
	t.due = min(end.Next(now), now+lookEvery)
	if err := t.alarm.set(t.due); err != nil {
		t.log.Error("the deadline is watched at each event only", "err", err)
	}
	return end.Step(now), end
}

// ReasonLeaseEnded is the reason of an instance that was stopped because the lease of its
// node ended.
const ReasonLeaseEnded = "lease_ended"

// ReasonExited is the reason of what ended by itself and is not started again by its guardian.
const ReasonExited = "exited"

// rings is when to look, nil without a lease.
func (t *tenure) rings() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.alarm.rang
}

// heed comes before every event, because a guardian that was paused over the deadline has
// many waiting: it must kill before it does anything else. It costs a clock reading.
func (s *supervisor) heed() {
	if s.tenure == nil || s.phase == ended || SinceBoot() < s.tenure.due {
		return
	}
	s.look()
}

// look ends the command when the lease says so. A command that was being stopped stays so:
// whether it runs again is decided when nothing of it is left.
func (s *supervisor) look() decide.LeaseStep {
	step, end := s.tenure.look()
	if step == decide.LeaseRun {
		return step
	}
	if s.phase != stopping {
		s.log.Info("the lease ends", "step", step)
		s.lapses = s.tenure.lease.Deadline
		s.state.Status.Reason = ReasonLeaseEnded
		if s.phase == starting { // refused, so the agent decides
			s.denied, s.forGood = true, true
		}
	}
	if step == decide.LeaseKill {
		s.stop(0)
		s.killAll()
		return step
	}
	s.stop(end.Kill - SinceBoot())
	return step
}

// mayBegin says whether the command may be started now, by a fresh look.
func (s *supervisor) mayBegin() bool { return s.tenure == nil || s.look() == decide.LeaseRun }

// resumes says whether a command that was stopped for the lease runs again: when a renewal
// came before the deadline for which it was stopped. Over a gap only the agent starts it, with
// the epoch that it has then.
func (s *supervisor) resumes() bool {
	if s.state.Status.Reason != ReasonLeaseEnded || s.forGood || SinceBoot() >= s.lapses {
		return false
	}
	step, _ := s.tenure.look()
	return step == decide.LeaseRun
}
