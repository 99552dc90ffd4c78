package provider

import (
	"context"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

const (
	// lookEvery is how soon the end of the work is noticed.
	lookEvery = 50 * time.Millisecond
	// drainGrace is how long cancelled work may still take after the deadline.
	drainGrace = time.Second
	// longestDrain bounds the drain time that a region may set.
	longestDrain = 24 * time.Hour
)

// draining is a drain under way. A nil pointer means no drain.
type draining struct {
	Drain
	look *time.Ticker
}

func (d *draining) looks() <-chan time.Time {
	if d == nil {
		return nil
	}
	return d.look.C
}

// takeDrain stops new executions before it answers (C25): the count in the ack only falls. It answers a
// repeated request again; the earlier deadline stays.
func (s *session) takeDrain(ctx context.Context, request *nodev1.DrainRequest) error {
	ms := min(max(request.GetDeadlineMs(), 0), longestDrain.Milliseconds())
	deadline := time.Now().Add(time.Duration(ms) * time.Millisecond)
	s.lane.drain()
	if s.drain == nil {
		s.drain = &draining{Drain: Drain{Reason: request.GetReason(), Deadline: deadline}, look: time.NewTicker(lookEvery)}
		s.watchdog.Stop()
		s.status.State = Draining
		s.report(s.status)
		s.notes.drain(s.drain.Drain)
	} else if deadline.Before(s.drain.Deadline) {
		s.drain.Deadline = deadline
		s.notes.drain(s.drain.Drain)
	}
	return s.send(ctx, "a drain was not acknowledged", func() error {
		return s.stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_DrainAck{DrainAck: &nodev1.DrainAck{
			ConnectionId: s.status.ConnectionID, InFlightCount: uint32(s.lane.inFlight()), //nolint:gosec // a small count
		}}})
	})
}

// look closes the stream when the work is done (C27). If it is not done by the deadline, the region ends the
// connection; this side does if the region does not.
func (s *session) look(ctx context.Context) error {
	if s.lane.inFlight() > 0 {
		if s.overdue() {
			return &DrainedError{Reason: s.drain.Reason}
		}
		return nil
	}
	if err := s.stream.CloseSend(); err != nil {
		return err
	}
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return errClosed
		case <-timer.C:
			return &silenceError{what: "the end of a drain was not answered", wait: s.timeout}
		case <-s.in:
		case err := <-s.over:
			return err
		}
	}
}

// overdue cancels the work at the deadline, and tells when the grace after that is over too.
func (s *session) overdue() bool {
	late := time.Since(s.drain.Deadline)
	if late >= 0 {
		s.lane.cancel()
	}
	return late > drainGrace
}

// settle waits for the work of a drained connection, whose stream may have ended for any reason: the region's
// drain stays valid.
func (s *session) settle(ctx context.Context) error {
	defer s.drain.look.Stop()
	for s.lane.inFlight() > 0 && !s.overdue() {
		select {
		case <-ctx.Done():
			return errClosed
		case <-s.drain.look.C:
		}
	}
	return &DrainedError{Reason: s.drain.Reason, Left: s.lane.inFlight()}
}
