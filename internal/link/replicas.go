package link

import (
	"context"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// takeReport has what a node says of its replicas written down, and acks it then. One is taken at a
// time: the next comes after the ack. Only nodes have replicas, and each reports of its own.
func (s *Server) takeReport(ctx context.Context, c *connection, in *nodev1.ReplicasReport) {
	report, err := reportOf(c, in)
	switch {
	case err != nil:
		s.refuseReport(c, err)
	case s.o.Replicas == nil: // whoever has replicas is elsewhere; what is not acked is told again there
	case !c.reporting.CompareAndSwap(false, true):
		s.refuseReport(c, fleet.Errorf(fleet.Invalid, "a report came before the one before it was acked"))
	default:
		go s.keepReport(ctx, c, in.GetSequence(), report)
	}
}

// refuseReport ends a stream on which something was said that no node says.
func (s *Server) refuseReport(c *connection, err error) {
	s.metrics.reports.WithLabelValues("refused").Inc()
	s.o.Log.Warn("a report of replicas is refused", "connection", c.id, "node", c.node, "error", err)
	identity := c.identity
	if c.node != "" { // it may have registered elsewhere
		identity = nodeIdentity(c.node)
	}
	s.o.Refuse(audit.Refusal{Door: DoorLink, Identity: identity, Reason: "replicas_report", What: err.Error()})
	s.end(c, fleet.StreamFailed)
}

// keepReport tries until it is written or the stream has ended: then all of it is told anew on the
// next one.
func (s *Server) keepReport(ctx context.Context, c *connection, sequence uint64, report fleet.ReplicasReport) {
	again := time.NewTicker(saveAgain)
	defer again.Stop()
	for failed := false; ; failed = true {
		subjects, err := s.writeReport(ctx, report)
		switch kind := fleet.KindOf(err); {
		case err == nil:
			c.reporting.Store(false)
			s.metrics.reports.WithLabelValues("taken").Inc()
			s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicasReportAck{
				ReplicasReportAck: &nodev1.ReplicasReportAck{Sequence: sequence},
			}})
			s.wakes.add(subjects)
			return
		case ctx.Err() != nil:
			return
		case kind == fleet.Gone || kind == fleet.NotFound: // its connection ended elsewhere
			s.hurry()
			return
		case kind == fleet.Invalid || kind == fleet.TooLarge:
			s.refuseReport(c, err)
			return
		case !failed:
			s.o.Log.Warn("trying on", "what", "write a report of replicas", "node", c.node, "error", err)
		}
		select {
		case <-c.done:
			return
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func (s *Server) writeReport(ctx context.Context, report fleet.ReplicasReport) ([]string, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	heard, err := s.o.Replicas.ReplicasReported(ctx, report)
	return heard.Wake, err
}

func reportOf(c *connection, in *nodev1.ReplicasReport) (fleet.ReplicasReport, error) {
	out := fleet.ReplicasReport{
		Node: c.node, Connection: c.id, Set: fleet.SetVersion{Era: in.GetSetEra(), Number: in.GetSetVersion()}, Complete: in.GetComplete(),
		Whole: in.GetComplete() && in.GetWhole(),
	}
	if c.node == "" {
		return out, fleet.Errorf(fleet.Denied, "only nodes have replicas")
	}
	if n := len(in.GetReplicas()); n > fleet.MaxReportedReplicas {
		return out, fleet.Errorf(fleet.TooLarge, "%d replicas in a report, allowed are %d", n, fleet.MaxReportedReplicas)
	}
	out.Replicas = make([]fleet.ReplicaStatus, len(in.GetReplicas()))
	for i, r := range in.GetReplicas() {
		out.Replicas[i] = statusOf(r)
	}
	return out, out.Validate()
}

func statusOf(r *nodev1.ReplicaStatus) fleet.ReplicaStatus {
	out := fleet.ReplicaStatus{
		ID: fleet.ReplicaID(r.GetId()), Phase: fleet.ReplicaPhase(r.GetPhase()), Health: fleet.ReplicaHealth(r.GetHealth()),
		Restarts: int(bounded(r.GetRestarts())), Endpoint: r.GetEndpoint(), PID: int(bounded(r.GetPid())),
		Reason: r.GetReason(), Message: r.GetMessage(), Age: r.GetAge().AsDuration(),
		Deployment: fleet.DeploymentName(r.GetDeployment()), Revision: r.GetRevision(),
	}
	if len(r.GetPorts()) > 0 {
		out.Ports = make(map[string]int, len(r.GetPorts()))
	}
	for name, port := range r.GetPorts() {
		out.Ports[name] = int(port)
	}
	return out
}
