package deployments

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// ReplicasHeard is what a node's word came to.
type ReplicasHeard struct {
	Wake  []string // the subjects that have something to decide by it
	Moved []fleet.ReplicaEvent
	Drift fleet.Drift // that the node corrected by itself
}

// ReplicasReported writes down what a node says of its replicas. What is no live one there is ended by its
// tombstone, or waits for an operator (X3). What a complete report lacks, although the node had it in a set,
// is lost there; what was to end has ended. A report by a connection that has ended is gone: a later one may
// have said more.
func (s *Store) ReplicasReported(ctx context.Context, r fleet.ReplicasReport) (ReplicasHeard, error) {
	if r.Digest != nil {
		return s.keepDigest(ctx, r)
	}
	var out ReplicasHeard
	var other map[fleet.DeploymentName][]fleet.ReplicaStep
	err := s.Tx(ctx, func(q *db.Queries) (err error) {
		report := &reporting{q: q, report: r}
		out.Wake, err = report.write(ctx)
		out.Moved, other = report.moved, report.other
		return err
	})
	if err == nil {
		err = s.replaceOthers(ctx, other) // a failure repeats the report, which finds them again
	}
	return heard(out, err)
}

// NodeStopped is DeregisterConnection of a node that ended all of its replicas: what was to run there has
// failed as soon as its node is disconnected, so that none is placed there again.
func (s *Store) NodeStopped(ctx context.Context, id fleet.ConnectionID, identity string) (ReplicasHeard, error) {
	var out ReplicasHeard
	err := nodes.On(s.Store).Deregister(ctx, id, identity, func(q *db.Queries, node string) (err error) {
		report := &reporting{q: q, report: fleet.ReplicasReport{Node: fleet.NodeName(node)}, all: true}
		out.Wake, err = report.stopped(ctx)
		out.Moved = report.moved
		return err
	})
	return heard(out, err)
}

// heard is nothing when it was not written.
func heard(out ReplicasHeard, err error) (ReplicasHeard, error) {
	if err != nil {
		return ReplicasHeard{}, err
	}
	return out, nil
}

// nodeActor is who did what a line's node says.
const nodeActor = "node"

// reporting is a report that is being written down.
type reporting struct {
	q       *db.Queries
	report  fleet.ReplicasReport
	all     bool  // from a node that ended all, without a request for any
	held    int64 // the number of the set that the node has, 0 when it is of an older era
	said    db.ReportReplicasParams
	at      time.Time // since which ages in the report count, if any failure is in it
	lost    []string
	ended   bool     // something left the node's set, or is named in it anew
	buried  []string // ended by another word than that nothing of it runs
	history map[declaration]*lines
	wake    map[string]bool
	moved   []fleet.ReplicaEvent
	other   map[fleet.DeploymentName][]fleet.ReplicaStep // they run other content than was released to them
}

// declaration is whose history a line belongs to.
type declaration struct{ name, uid string }

func (r *reporting) write(ctx context.Context) ([]string, error) {
	r.history, r.wake = map[declaration]*lines{}, map[string]bool{}
	if err := r.heard(ctx); err != nil {
		return nil, err
	}
	if err := r.holds(ctx); err != nil {
		return nil, err
	}
	if err := r.times(ctx); err != nil {
		return nil, err
	}
	said := make(map[string]fleet.ReplicaStatus, len(r.report.Replicas))
	p := db.LockReplicasOfNodeParams{Node: string(r.report.Node), Every: r.report.Complete, Ids: []string{}}
	for _, x := range r.report.Replicas {
		said[string(x.ID)] = x
		p.Ids = append(p.Ids, string(x.ID))
	}
	rows, err := r.q.LockReplicasOfNode(ctx, p)
	if err != nil {
		return nil, err
	}
	live := make(map[string]bool, len(rows))
	for _, row := range rows {
		live[row.ID] = true
		status, is := said[row.ID]
		if !is {
			status, is = r.missing(row)
		}
		if is {
			if err := r.take(row, status); err != nil {
				return nil, err
			}
		}
	}
	if err := r.others(ctx, rows, said); err != nil {
		return nil, err
	}
	if err := r.confirm(ctx, live); err != nil {
		return nil, err
	}
	if err := r.keep(ctx, live); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(r.wake)), nil
}

// holds finds out by which set of this era the node acted.
func (r *reporting) holds(ctx context.Context) error {
	g, err := r.q.GetRegion(ctx)
	if r.held = r.report.Set.Number; r.report.Set.Era != 0 && r.report.Set.Era != g.Era {
		r.held = 0
	}
	return err
}

// times reads the clock if a check fails in the report.
func (r *reporting) times(ctx context.Context) (err error) {
	if slices.ContainsFunc(r.report.Replicas, fleet.ReplicaStatus.FailsChecks) {
		r.at, err = r.q.Now(ctx)
	}
	return err
}

// stopped is the word of a node that nothing of its replicas runs any more. It remembers them: what has
// ended is named to it when it is back.
func (r *reporting) stopped(ctx context.Context) ([]string, error) {
	r.history, r.wake = map[declaration]*lines{}, map[string]bool{}
	rows, err := r.q.LockReplicasOfNode(ctx, db.LockReplicasOfNodeParams{Node: string(r.report.Node), Every: true, Ids: []string{}})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if fleet.ReplicaPhase(row.Phase).Over() && fleet.ReplicaState(row.State).Live() {
			continue // it ended before, and its node said of what
		}
		err := r.take(row, fleet.ReplicaStatus{
			ID: fleet.ReplicaID(row.ID), Phase: fleet.PhaseStopped, Health: fleet.HealthNotChecked, Restarts: int(row.Restarts),
			Reason: fleet.ReasonNodeStopped, Message: "its node was stopped, and ended it",
		})
		if err != nil {
			return nil, err
		}
	}
	err = r.keep(ctx, nil)
	return slices.Sorted(maps.Keys(r.wake)), err
}

// heard holds the connection that the report came by.
func (r *reporting) heard(ctx context.Context) error {
	if r.report.Connection == "" {
		return nil
	}
	live, err := r.q.HoldConnection(ctx, string(r.report.Connection))
	if postgres.NoRows(err) || err == nil && (live == nil || *live != string(r.report.Node)) {
		return fleet.Errorf(fleet.Gone, "the connection of the report has ended")
	}
	return err
}

// missing is what a complete report says of a replica that is not in it.
func (r *reporting) missing(row db.Replica) (fleet.ReplicaStatus, bool) {
	if row.Listed > r.held {
		return fleet.ReplicaStatus{}, false // the node does not know of it yet
	}
	if fleet.ReplicaState(row.State) == fleet.ReplicaTerminating {
		return fleet.ReplicaStatus{ID: fleet.ReplicaID(row.ID), Phase: fleet.PhaseStopped, Health: fleet.ReplicaHealth(row.Health), Restarts: int(row.Restarts)}, true
	}
	if !row.Lost {
		r.lost = append(r.lost, row.ID)
		r.wakes(row)
	}
	return fleet.ReplicaStatus{}, false
}

func (r *reporting) wakes(row db.Replica) {
	r.wake[fleet.DeploymentSubject(fleet.DeploymentName(row.Deployment))] = true
}

// take moves one replica by what its node says.
func (r *reporting) take(row db.Replica, said fleet.ReplicaStatus) error {
	state, failedNow := fleet.ReplicaState(row.State), false
	for _, on := range decide.ReplicaReported(seenOf(row), said) {
		r.moved = append(r.moved, on)
		to, err := state.Next(on)
		if err != nil {
			return err
		}
		if to == state {
			continue
		}
		line := historyLine{replica: row.ID, node: row.Node, from: string(state), to: string(to), reason: reasonOf(said, on), message: toldOf(said), actor: nodeActor}
		r.line(row, line)
		state, failedNow = to, failedNow || on == fleet.ReplicaFailed && said.Reason != fleet.ReasonNodeStopped
	}
	// What is unhealthy and then given up is in no other state, and is not waited for any more; nor is the word
	// of a node that is back.
	over, again := said.Phase.Over() && !fleet.ReplicaPhase(row.Phase).Over(), state == fleet.ReplicaUnhealthy && said.Reason != row.Reason
	if string(state) != row.State || over || again || said.Unready != row.Unready {
		r.wakes(row)
	}
	if state == fleet.ReplicaTerminated {
		r.ended = true
		if r.all || said.Phase != fleet.PhaseStopped { // its end was not requested, and it may be started again
			r.buried = append(r.buried, row.ID)
		}
	}
	return r.column(row, said, state, failedNow)
}

// reasonOf is the word for what moved a replica, its node's where it gave one.
func reasonOf(said fleet.ReplicaStatus, on fleet.ReplicaEvent) string {
	if said.Reason != "" {
		return said.Reason
	}
	return string(on)
}

// toldOf is what the history says of a replica: with the cause only, as those of one wave are one line.
func toldOf(said fleet.ReplicaStatus) string {
	if said.HealthFailure == nil {
		return said.Message
	}
	return fleet.Explained(said.Reason, said.Message, said.HealthFailure.Cause)
}

func (r *reporting) line(row db.Replica, l historyLine) {
	of := declaration{row.Deployment, row.Uid}
	if r.history[of] == nil {
		r.history[of] = &lines{}
	}
	r.history[of].add(l)
}

func seenOf(r db.Replica) fleet.ReplicaSeen {
	return fleet.ReplicaSeen{
		ID: fleet.ReplicaID(r.ID), Node: fleet.NodeName(r.Node), Site: fleet.SiteName(r.Site), State: fleet.ReplicaState(r.State),
		Health: fleet.ReplicaHealth(r.Health), Phase: phaseOf(r), Revision: r.Revision, ProcessVersion: r.ProcessVersion,
		Restarts: int(r.Restarts), CreatedAt: r.CreatedAt, Since: r.Since, Reason: r.Reason, Message: r.Message, StopBy: timeOf(r.StopBy), Lost: r.Lost,
		Unready: r.Unready, ReadySince: timeOf(r.ReadySince),
	}
}

func phaseOf(r db.Replica) fleet.ReplicaPhase {
	return fleet.ReplicaPhase(r.Phase).Exactly(fleet.ReplicaPhase(r.ExactPhase))
}

// column adds a row to the statement that writes all.
func (r *reporting) column(row db.Replica, said fleet.ReplicaStatus, state fleet.ReplicaState, failedNow bool) error {
	ports, err := json.Marshal(said.Ports)
	if err != nil {
		return err
	}
	if said.Ports == nil {
		ports = json.RawMessage("{}")
	}
	failing, err := json.Marshal(said.FailedAt(r.at))
	if err != nil {
		return err
	}
	c := &r.said
	c.Ids, c.States, c.Healths = append(c.Ids, row.ID), append(c.States, string(state)), append(c.Healths, string(said.Health))
	c.Phases, c.ExactPhases = append(c.Phases, string(said.Phase.Known())), append(c.ExactPhases, string(said.Phase.Exact()))
	c.Restarts = append(c.Restarts, postgres.WaveNumber(said.Restarts))
	c.Endpoints, c.Ports, c.Pids = append(c.Endpoints, said.Endpoint), append(c.Ports, ports), append(c.Pids, postgres.WaveNumber(said.PID))
	c.Reasons, c.Messages, c.Failed = append(c.Reasons, said.Reason), append(c.Messages, said.Message), append(c.Failed, failedNow)
	c.Failing = append(c.Failing, failing)
	c.Ages, c.Unreadies = append(c.Ages, said.Age.Seconds()), append(c.Unreadies, said.Unready)
	return nil
}

// keep writes what was found, raises the node's set where something left it or is to, and wakes.
func (r *reporting) keep(ctx context.Context, live map[string]bool) error {
	if len(r.said.Ids) > 0 {
		if err := r.q.ReportReplicas(ctx, r.said); err != nil {
			return err
		}
	}
	if len(r.lost) > 0 {
		if err := r.q.LoseReplicas(ctx, r.lost); err != nil {
			return err
		}
	}
	bury, err := r.unlisted(ctx, live)
	if err != nil {
		return err
	}
	node := string(r.report.Node)
	if r.ended {
		versions, err := RaiseSets(ctx, r.q, []string{node})
		if err != nil {
			return err
		}
		if err := r.bury(ctx, bury, versions[node]); err != nil {
			return err
		}
		if err := TellSets(ctx, r.q, versions); err != nil {
			return err
		}
		if err := r.hurryDrain(ctx); err != nil {
			return err
		}
	}
	if err := r.recorded(ctx); err != nil {
		return err
	}
	for _, of := range slices.SortedFunc(maps.Keys(r.history), compareDeclarations) {
		if err := r.history[of].write(ctx, r.q, of.name, of.uid); err != nil {
			return err
		}
	}
	return postgres.PutOutbox(ctx, r.q, slices.Sorted(maps.Keys(r.wake))...)
}

// recorded keeps the set that the node has, and makes its digest void.
func (r *reporting) recorded(ctx context.Context) error {
	node := string(r.report.Node)
	if err := r.q.HoldNodeSet(ctx, db.HoldNodeSetParams{Held: min(r.held, r.report.Set.Number), Node: node}); err != nil {
		return err
	}
	return r.q.CountReport(ctx, node)
}

// hurryDrain wakes the drain that waits for the node to be empty.
func (r *reporting) hurryDrain(ctx context.Context) error {
	drains, err := r.q.DrainOfNode(ctx, string(r.report.Node))
	if drains {
		r.wake[fleet.DrainSubject(r.report.Node)] = true
	}
	return err
}

func compareDeclarations(a, b declaration) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid))
}
