package provider

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// live sends heartbeats and handles the region's messages until either side ends the stream.
func (s *session) live(ctx context.Context) error {
	heartbeat := time.NewTicker(s.interval)
	defer heartbeat.Stop()
	defer s.watchdog.Stop()
	s.feeding = newFeeding(ctx, s.opt.Replicas)
	defer s.feeding.end()
	for {
		var err error
		select {
		case <-ctx.Done():
			return errClosed
		case err = <-s.over:
			return err
		case m := <-s.in:
			err = s.take(ctx, m)
		case <-heartbeat.C:
			err = s.beat(ctx)
		case <-s.watchdog.C:
			err = s.bark()
		case <-s.drain.looks():
			err = s.look(ctx)
		case report := <-s.feeding.next():
			err = s.tell(ctx, report)
		case err = <-s.feeding.failure():
		}
		if err != nil {
			return s.lastWord(ctx, err)
		}
	}
}

// lastWord is the region's error, if a send found the stream closed.
func (s *session) lastWord(ctx context.Context, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		select {
		case err := <-s.over:
			return err
		case m := <-s.in:
			if err := s.take(ctx, m); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
}

func (s *session) beat(ctx context.Context) error {
	err := s.send(ctx, "a heartbeat was not sent", func() error {
		return s.stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{
			ConnectionId: s.status.ConnectionID, ProtocolVersion: s.version,
			Timestamp: timestamppb.Now(), InFlightCount: uint32(s.lane.inFlight()), //nolint:gosec // a small count
		}}})
	})
	if s.unanswered.IsZero() {
		s.unanswered = time.Now()
		s.watch()
	}
	return err
}

// watch sets the watchdog for the time at which the region counts as lost.
func (s *session) watch() {
	s.watchdog.Reset(time.Until(s.lost(s.answered, s.unanswered)))
}

// bark ends a connection whose heartbeats are not answered (C21). While it drains, its deadline applies (C69).
func (s *session) bark() error {
	if s.drain != nil {
		return nil
	}
	if time.Since(s.lost(s.answered, s.unanswered)) > s.timeout/3 {
		// This process was paused, which means nothing about the server: answers may be waiting.
		s.answered = time.Now()
		s.watch()
		return nil
	}
	return &silenceError{what: "no heartbeat was answered", wait: s.timeout}
}

func (s *session) take(ctx context.Context, m *nodev1.ConnectResponse) error {
	switch m := m.GetMessage().(type) {
	case *nodev1.ConnectResponse_HeartbeatAck:
		s.acked(m.HeartbeatAck)
	case *nodev1.ConnectResponse_ActiveModulesReport:
		s.notes.report(m.ActiveModulesReport.GetActiveModules())
	case *nodev1.ConnectResponse_Wake:
		s.notes.wake()
	case *nodev1.ConnectResponse_Site:
		s.notes.site(m.Site)
	case *nodev1.ConnectResponse_ReplicaSet:
		s.notes.set(m.ReplicaSet)
	case *nodev1.ConnectResponse_ReplicasReportAck:
		s.feeding.acked(m.ReplicasReportAck.GetSequence())
	case *nodev1.ConnectResponse_ReplicasReportRequest:
		s.notes.askReport()
	case *nodev1.ConnectResponse_DrainRequest:
		return s.takeDrain(ctx, m.DrainRequest)
	case *nodev1.ConnectResponse_RegisterAgain:
		if m.RegisterAgain.GetReason() == string(fleet.Replaced) {
			return ErrReplaced
		}
		return &registerAgainError{m.RegisterAgain.GetReason()}
	}
	return nil // of a newer protocol
}

func (s *session) acked(ack *nodev1.HeartbeatAck) {
	if ack.GetConnectionId() != s.status.ConnectionID {
		return
	}
	s.answered, s.unanswered = time.Now(), time.Time{}
	s.watch()
	if s.lived {
		return
	}
	s.lived = true
	if s.drain == nil {
		s.status.State = Active
		s.report(s.status)
	}
}
