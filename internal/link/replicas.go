package link

import (
	"context"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// takeReport stores a node's report of its replicas, and acks it then. It accepts one at a time: the next comes
// after the ack. Only nodes have replicas, and each reports only its own.
func (s *Server) takeReport(ctx context.Context, c *connection, in *nodev1.ReplicasReport) {
	report, err := reportOf(c, in)
	switch {
	case err != nil:
		s.refuseReport(c, err)
	case s.o.Replicas == nil: // replicas are at another server; the node repeats unacknowledged reports there
	case !c.reporting.CompareAndSwap(false, true):
		s.refuseReport(c, fleet.Errorf(fleet.Invalid, "a report arrived before the previous one was acknowledged"))
	default:
		go s.keepReport(ctx, c, in.GetSequence(), report)
	}
}

// refuseReport ends a stream on which a report arrived that no node sends.
func (s *Server) refuseReport(c *connection, err error) {
	s.metrics.reports.WithLabelValues("refused").Inc()
	s.o.Log.Warn("refused a report of replicas", "connection", c.id, "node", c.node, "error", err)
	identity := c.identity
	if c.node != "" { // it may have registered elsewhere
		identity = nodeIdentity(c.node)
	}
	s.o.Refuse(audit.Refusal{Door: DoorLink, Identity: identity, Reason: "replicas_report", What: err.Error()})
	s.end(c, fleet.StreamFailed)
}

// keepReport retries until the report is written or the stream has ended: then the node reports everything on the
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
			s.o.Log.Warn("failed, retrying", "what", "write a report of replicas", "node", c.node, "error", err)
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
	if n := max(len(in.GetReplicas()), len(in.GetDigest().GetReplicas())); n > fleet.MaxReportedReplicas {
		return out, fleet.Errorf(fleet.TooLarge, "%d replicas in a report; the limit is %d", n, fleet.MaxReportedReplicas)
	}
	if in.GetDigest() != nil {
		out.Digest = digestOf(in.GetDigest())
	}
	out.Replicas = make([]fleet.ReplicaStatus, len(in.GetReplicas()))
	for i, r := range in.GetReplicas() {
		out.Replicas[i] = statusOf(r)
	}
	return out, out.Validate()
}

func statusOf(r *nodev1.ReplicaStatus) fleet.ReplicaStatus {
	out := fleet.ReplicaStatus{
		ID: fleet.ReplicaID(r.GetId()), Phase: fleet.ReplicaPhase(r.GetPhase()).Exactly(fleet.ReplicaPhase(r.GetExactPhase())), Health: fleet.ReplicaHealth(r.GetHealth()), Unready: r.GetUnready(),
		Restarts: int(bounded(r.GetRestarts())), Endpoint: r.GetEndpoint(), PID: int(bounded(r.GetPid())),
		Reason: r.GetReason(), Message: r.GetMessage(), Age: r.GetAge().AsDuration(),
		Deployment: fleet.DeploymentName(r.GetDeployment()), Revision: r.GetRevision(),
		ProcessVersion: r.GetProcessVersion(), Definition: r.GetDefinition(),
	}
	out.HealthFailure, out.ReadinessFailure = failureOf(r.GetHealthFailure()), failureOf(r.GetReadinessFailure())
	if len(r.GetPorts()) > 0 {
		out.Ports = make(map[string]int, len(r.GetPorts()))
	}
	for name, port := range r.GetPorts() {
		out.Ports[name] = int(port)
	}
	return out
}

func failureOf(f *nodev1.CheckFailure) *fleet.ReportedFailure {
	if f == nil {
		return nil
	}
	return &fleet.ReportedFailure{
		CheckFailure: fleet.CheckFailure{Check: f.GetCheck(), Cause: f.GetCause(), Listens: f.GetListens(), Times: int(bounded(f.GetTimes()))}, Age: f.GetAge().AsDuration(),
	}
}

func digestOf(in *nodev1.ReplicasDigest) *fleet.ReplicasDigest {
	out := &fleet.ReplicasDigest{
		Replicas: make([]fleet.ReplicaMark, len(in.GetReplicas())), Missing: int(bounded(in.GetMissing())), Stray: int(bounded(in.GetStray())),
	}
	for i, m := range in.GetReplicas() {
		out.Replicas[i] = fleet.ReplicaMark{
			ID: fleet.ReplicaID(m.GetId()), Revision: m.GetRevision(), ProcessVersion: m.GetProcessVersion(), Definition: m.GetDefinition(),
			Phase: fleet.ReplicaPhase(m.GetPhase()), Health: fleet.ReplicaHealth(m.GetHealth()), Unready: m.GetUnready(),
		}
	}
	return out
}

// askReport asks a node for a complete report, if this server has its stream.
func (s *Server) askReport(node fleet.NodeName, _ int64) {
	s.mu.RLock()
	c := s.nodes[node]
	s.mu.RUnlock()
	if c != nil && c.now() != fleet.ConnectionRegistered {
		s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicasReportRequest{ReplicasReportRequest: &nodev1.ReplicasReportRequest{}}})
	}
}
