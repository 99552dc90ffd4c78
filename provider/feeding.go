package provider

import (
	"context"
	"fmt"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// ReplicaFeed gives a node's reports about its replicas. One stream at a time reads it and acks its reports;
// reports not acked when a stream ends are repeated on the next one.
type ReplicaFeed interface {
	// Next waits for the next report. With complete, which is set once at the start of each stream, the report has
	// all replicas, and may be empty; otherwise it has those that changed, or a digest. The feed numbers its reports, each
	// higher than the one before, and does not change a report that it returned. The context ends with the stream;
	// any other error ends the stream.
	Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error)
	// Acked tells the feed that the region has stored the report durably. It does not block.
	Acked(sequence uint64)
}

// feeding passes the reports of a feed to one stream, each after the ack of the one before. A nil pointer
// passes none.
type feeding struct {
	feed    ReplicaFeed
	reports chan *nodev1.ReplicasReport
	acks    chan struct{}
	failed  chan error
	waits   uint64 // the number of the expected ack
	open    bool   // an ack is expected
	stop    context.CancelFunc
	ended   chan struct{}
}

// newFeeding requests the first report; call end at last.
func newFeeding(ctx context.Context, feed ReplicaFeed) *feeding {
	if feed == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	f := &feeding{
		feed: feed, reports: make(chan *nodev1.ReplicasReport), acks: make(chan struct{}, 1), failed: make(chan error, 1),
		stop: stop, ended: make(chan struct{}),
	}
	go f.run(ctx)
	return f
}

func (f *feeding) run(ctx context.Context) {
	defer close(f.ended)
	for complete := true; ; complete = false {
		report, err := f.feed.Next(ctx, complete)
		if err != nil {
			f.failed <- fmt.Errorf("read a report about replicas: %w", err)
			return
		}
		select {
		case f.reports <- report:
		case <-ctx.Done():
			return
		}
		select {
		case <-f.acks:
		case <-ctx.Done():
			return
		}
	}
}

// end waits until the feed is no longer in use.
func (f *feeding) end() {
	if f == nil {
		return
	}
	f.stop()
	<-f.ended
}

func (f *feeding) next() <-chan *nodev1.ReplicasReport {
	if f == nil {
		return nil
	}
	return f.reports
}

func (f *feeding) failure() <-chan error {
	if f == nil {
		return nil
	}
	return f.failed
}

// acked handles the expected ack, and ignores any other.
func (f *feeding) acked(sequence uint64) {
	if f == nil || !f.open || sequence != f.waits {
		return
	}
	f.open = false
	f.feed.Acked(sequence)
	f.acks <- struct{}{} // there is room: one report is open at a time
}

// tell sends a report on the stream.
func (s *session) tell(ctx context.Context, report *nodev1.ReplicasReport) error {
	s.feeding.waits, s.feeding.open = report.GetSequence(), true
	return s.send(ctx, "a report was not sent", func() error {
		return s.stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_ReplicasReport{ReplicasReport: report}})
	})
}
