package guardian

import (
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// tenure is the lease under which a guardian runs its command.
type tenure struct {
	root, boot string
	grace      time.Duration
	alarm      *alarm
	log        *slog.Logger

	lease Lease
	// due is when to check again: nothing is due before it.
	due time.Duration
}

// newTenure is nil without a lease.
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

// look reads the lease and decides what is due. After a read error the last lease stays in force; an invalid
// lease ends everything.
func (t *tenure) look() (decide.LeaseStep, decide.LeaseEnd) {
	lease, err := readLease(t.root, t.boot)
	switch {
	case err == nil:
		t.lease = lease
	case errors.Is(err, errNoRight):
		t.log.Error("no valid lease", "err", err)
		t.lease = Lease{}
	default:
		t.log.Error("read the lease", "err", err)
	}
	now, end := SinceBoot(), t.lease.end(t.grace)
	t.due = min(end.Next(now), now+lookEvery)
	if err := t.alarm.set(t.due); err != nil {
		t.log.Error("set the timer; the deadline is checked at events only", "err", err)
	}
	return end.Step(now), end
}

// ReasonLeaseEnded is the reason of an instance that was stopped because the lease of its node ended.
const ReasonLeaseEnded = "lease_ended"

// ReasonExited is the reason of a command that ended by itself and that its guardian does not restart.
const ReasonExited = "exited"

// rings is when to check, nil without a lease.
func (t *tenure) rings() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.alarm.rang
}

// heed runs before every event, because a guardian that was paused past the deadline has many events waiting:
// it must kill before it does anything else. It costs a clock reading.
func (s *supervisor) heed() {
	if s.tenure == nil || s.phase == ended || SinceBoot() < s.tenure.due {
		return
	}
	s.look()
}

// look ends the command when the lease requires it. A command that is already stopping keeps stopping: whether
// it runs again is decided when nothing of it is left.
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

// mayBegin tells whether the command may start now, by a fresh check.
func (s *supervisor) mayBegin() bool { return s.tenure == nil || s.look() == decide.LeaseRun }

// resumes tells whether a command that was stopped for the lease runs again: if a renewal came before the
// deadline for which it was stopped. After a gap only the agent starts it, with its epoch of that time.
func (s *supervisor) resumes() bool {
	if s.state.Status.Reason != ReasonLeaseEnded || s.forGood || SinceBoot() >= s.lapses {
		return false
	}
	step, _ := s.tenure.look()
	return step == decide.LeaseRun
}
