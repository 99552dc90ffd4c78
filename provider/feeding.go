package provider

import (
	"context"
	"fmt"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// ReplicaFeed has what a node tells of its replicas. It is asked by one stream at a time, and told
// of acks by the same; what was not acked when a stream ended is told again on the next one.
type ReplicaFeed interface {
	// Next waits until there is something to tell: all replicas when complete is asked for, which is
	// once at the beginning of each stream and may be none at all, else those that changed. The feed
	// numbers its reports, each higher than the one before; it does not change one that it gave. The
	// context ends with the stream; any other error ends the stream.
	Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error)
	// Acked says that the region has the report, durably. It does not wait.
	Acked(sequence uint64)
}

// feeding hands the reports of a feed to one stream, each when the one before was acked. The zero
// pointer hands out none.
type feeding struct {
	feed    ReplicaFeed
	reports chan *nodev1.ReplicasReport
	acks    chan struct{}
	failed  chan error
	waits   uint64 // the number that is to be acked
	open    bool   // one is
	stop    context.CancelFunc
	ended   chan struct{}
}

// newFeeding asks for the first report; end it.
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
			f.failed <- fmt.Errorf("ask for what became of replicas: %w", err)
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

// end waits until the feed is not asked any more.
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

// acked takes the ack that is waited for; any other says nothing.
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
