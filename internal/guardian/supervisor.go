package guardian

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// phase is a guardian's state; the diagram is in the package comment.
type phase string

const (
	starting phase = "starting" // the first process has not lived long enough yet
	running  phase = "running"
	waiting  phase = "waiting" // for the back-off and the end of what the last process left
	stopping phase = "stopping"
	ended    phase = "ended"
)

// again is how soon killed processes are killed again: a kill may miss one that forks fast.
const again = 20 * time.Millisecond

// supervisor is one loop over events; all of its fields belong to that loop.
type supervisor struct {
	dir    string
	launch launch
	log    *slog.Logger
	now    func() time.Time
	lock   *os.File
	ready  *readiness
	family *family
	output *output

	state   state
	phase   phase
	step    int // the PreStart command that runs, its length for the command itself
	timer   *time.Timer
	since   time.Time     // start of the process, with its monotonic reading
	backoff time.Duration // the last one
	kill    bool          // stopping: the grace is over
	until   time.Time     // stopping: when the grace ends
	failure string        // why the start failed
	denied  bool          // starting: the lease did not allow it

	tenure  *tenure       // nil without a lease
	lapses  time.Duration // the deadline for which it was stopped
	forGood bool          // no renewal restarts it

	calls   chan call
	starts  []call // answered with the result of the start
	stops   []call // answered at the end
	ended   chan struct{}
	serving *server
}

// call is one request of the socket on its way to the loop.
type call struct {
	request request
	answer  chan<- response // buffered
}

// guard runs the command until it is stopped for good.
func (s *supervisor) guard(ctx context.Context) error {
	s.timer = time.NewTimer(s.launch.startWindow())
	s.state.Status = Status{
		Instance: s.launch.Instance, Labels: s.launch.Labels, Since: s.now(),
		Guardian: Live, GuardianPID: os.Getpid(), UID: s.launch.UID, Starting: true,
	}
	s.serving = &server{dir: s.dir, calls: s.calls, ended: s.ended, now: s.now, conns: map[net.Conn]bool{}}
	if err := s.serving.serve(); err != nil {
		return errors.Join(err, s.output.close(s.now()), s.ready.say(refusal(s.state.Status, err)))
	}
	s.phase = starting
	if s.mayBegin() {
		s.begin()
	}
	for done := ctx.Done(); s.phase != ended; {
		select {
		case <-s.family.changed:
			s.heed()
			s.onFamily()
		case <-s.timer.C:
			was := s.phase
			if s.heed(); s.phase == was { // else the timer was for an earlier phase
				s.onTimer()
			}
		case c := <-s.calls:
			s.heed()
			s.onCall(c)
		case <-s.tenure.rings():
			s.heed()
		case <-done:
			done = nil
			s.heed()
			s.forGood = true
			s.stop(s.launch.stopGrace())
		}
	}
	return s.finish()
}

// begin starts the process. Its start window begins with it.
func (s *supervisor) begin() {
	s.step = 0
	s.proceed()
	if s.phase == starting {
		s.timer.Reset(s.launch.startWindow())
	}
}

// proceed starts the next PreStart command, or the command itself.
func (s *supervisor) proceed() {
	s.since = s.now()
	started, err := s.execute()
	if err != nil {
		s.onExit("not started: " + err.Error())
		return
	}
	st := &s.state
	st.Command, st.Session = started, session()
	st.Status.Preparing = s.step < len(s.launch.PreStart)
	st.Status.Running, st.Status.PID, st.Status.Since = started.PID != 0, started.PID, s.since
	s.save()
}

func session() int {
	sid, err := unix.Getsid(0)
	if err != nil { // documented as impossible for the calling process
		return os.Getpid()
	}
	return sid
}

// save stores the state for the next guardian or agent. An error does not end a running instance: the cookie
// and the guardian were written before anything started.
func (s *supervisor) save() {
	if err := writeJSON(filepath.Join(s.dir, stateFile), s.state); err != nil {
		s.log.Error("write the state", "err", err)
	}
}

func (s *supervisor) onFamily() {
	if how, ok := s.family.takeExit(); ok {
		s.onExit(how)
	}
	if s.phase == stopping && s.family.empty() {
		s.settled()
	}
}

// settled runs when nothing of a stopped command is left.
func (s *supervisor) settled() {
	if !s.resumes() {
		s.phase = ended
		return
	}
	s.state.Status.Reason, s.kill, s.phase = "", false, waiting
	s.timer.Reset(0)
}

func (s *supervisor) onExit(how string) {
	if s.step < len(s.launch.PreStart) {
		if how == exitSuccess && (s.phase == starting || s.phase == running) {
			s.step++
			s.proceed()
			return
		}
		how = fmt.Sprintf("command %d before the start: %s", s.step+1, how)
	}
	st := &s.state.Status
	st.Preparing = false
	st.Running, st.PID, st.LastExit, st.Since = false, 0, how, s.now()
	switch s.phase {
	case starting:
		s.failure, s.forGood = how, true
		s.stop(0)
	case running:
		if s.launch.Once {
			st.Reason = ReasonExited
			s.stop(0)
			break
		}
		s.signalAll(unix.SIGKILL) // what the process left must not run next to the next one
		s.backoff = s.launch.Backoff.next(s.backoff, s.now().Sub(s.since))
		s.phase = waiting
		s.timer.Reset(s.backoff)
	case waiting, stopping, ended:
	}
	s.save()
}

func (s *supervisor) onTimer() {
	switch s.phase {
	case starting:
		s.family.look() // on a busy machine the end of the command may not have been seen yet
		if s.onFamily(); s.phase != starting {
			return
		}
		s.phase, s.state.Status.Starting = running, false
		s.answerStart(response{Status: s.state.Status})
	case waiting:
		if !s.family.empty() {
			s.signalAll(unix.SIGKILL)
			s.timer.Reset(again)
			return
		}
		if !s.mayBegin() {
			return
		}
		s.phase = running
		s.state.Status.Restarts++
		s.begin()
	case stopping:
		s.killAll()
	case running, ended:
	}
}

func (s *supervisor) onCall(c call) {
	switch c.request.Op {
	case opStatus:
		c.answer <- response{Status: s.state.Status}
	case opSignal:
		if err := s.signal(c.request); err != nil {
			c.answer <- refusal(s.state.Status, err)
			return
		}
		c.answer <- response{Status: s.state.Status}
	case opLease:
		if s.tenure != nil && s.phase != ended {
			s.look()
		}
		c.answer <- response{Status: s.state.Status}
	case opStart:
		if s.starts = append(s.starts, c); s.phase != starting && !s.forGood {
			s.answerStart(response{Status: s.state.Status})
		}
	case opStop:
		s.stops, s.forGood = append(s.stops, c), true
		s.stop(c.request.grace(s.launch.Spec))
	default:
		c.answer <- refusal(s.state.Status, fleet.Errorf(fleet.Invalid, "unknown operation %.40q", c.request.Op))
	}
}

// answerStart gives the result of the start to the agent that asked for it, and to those that wait for it since.
func (s *supervisor) answerStart(result response) {
	if err := s.ready.say(result); err != nil {
		s.log.Error("report the start", "err", err)
	}
	for _, c := range s.starts {
		c.answer <- result
	}
	s.starts = nil
}

// signal signals the process first, then stores the labels: after a crash in between the agent repeats the
// signal; the other order would lose the change.
func (s *supervisor) signal(r request) error {
	if s.phase == stopping || s.phase == ended {
		return fleet.Errorf(fleet.IllegalState, "the instance is being stopped")
	}
	sig := unix.SignalNum(r.Signal)
	if sig == 0 {
		return fleet.Errorf(fleet.Invalid, "unknown signal %.40q", r.Signal)
	}
	if err := s.family.signalLeader(sig); err != nil {
		return err
	}
	s.launch.Labels, s.state.Status.Labels = r.Labels, r.Labels
	if err := writeJSON(filepath.Join(s.dir, specFile), s.launch); err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.dir, stateFile), s.state)
}

// stop may be called again; the shortest grace counts.
func (s *supervisor) stop(grace time.Duration) {
	until := s.now().Add(grace)
	repeated := s.phase == stopping
	if repeated && (s.kill || !until.Before(s.until)) {
		return
	}
	s.phase, s.until = stopping, until
	if s.family.empty() {
		s.phase = ended
		return
	}
	s.timer.Reset(grace)
	if repeated || grace <= 0 {
		return
	}
	s.signalAll(unix.SIGTERM, unix.SIGCONT) // a stopped process would not handle the SIGTERM
}

// killAll is repeated until nothing is left.
func (s *supervisor) killAll() {
	s.kill = true
	s.signalAll(unix.SIGKILL)
	s.timer.Reset(again)
}

func (s *supervisor) signalAll(signals ...unix.Signal) {
	if err := s.family.signalAll(signals...); err != nil {
		s.log.Error("signal processes", "signal", unix.SignalName(signals[0]), "err", err)
	}
}

// finish frees the name before it answers, so that a caller can start the instance again as soon as it has the
// answer.
func (s *supervisor) finish() error {
	if err := s.output.close(s.now()); err != nil {
		s.log.Error("output incomplete", "err", err)
	}
	s.state.Stopped = true
	st := &s.state.Status
	st.Running, st.PID, st.Starting = false, 0, false
	if s.forGood {
		st.Reason = ""
	}
	s.save()
	if err := s.serving.unlink(); err != nil {
		s.log.Error("remove the socket", "err", err)
	}
	if err := unlock(s.lock); err != nil { // it ends with the process in any case
		s.log.Error("release the lock", "err", err)
	}
	result, err := s.outcome()
	s.answerStart(result)
	for _, c := range s.stops {
		c.answer <- response{Status: *st}
	}
	close(s.ended)
	s.serving.close()
	return err
}

// outcome is the result of a start that did not succeed; nobody waits for it after one that did. It is an error
// only if the command ended.
func (s *supervisor) outcome() (response, error) {
	if s.failure != "" {
		err := s.startError()
		return refusal(s.state.Status, err), err
	}
	if s.denied {
		return refusal(s.state.Status, errLeaseEnded()), nil
	}
	return refusal(s.state.Status, fleet.Errorf(fleet.Conflict, "stopped while it was starting")), nil
}

func (s *supervisor) startError() error {
	return fleet.Errorf(fleet.ApplyFailed, "the command ended before it had run for %s: %s",
		s.launch.startWindow(), s.failure)
}
