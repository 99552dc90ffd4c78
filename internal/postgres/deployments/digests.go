package deployments

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// keepDigest writes a digest down. It changes nothing else.
func (s *Store) keepDigest(ctx context.Context, r fleet.ReplicasReport) (ReplicasHeard, error) {
	kept, err := s.Q.KeepDigest(ctx, db.KeepDigestParams{
		Connection: string(r.Connection), Node: string(r.Node), Era: r.Set.Era, Version: r.Set.Number, Marks: marksText(r.Digest.Replicas),
	})
	switch {
	case err != nil:
		return ReplicasHeard{}, err
	case kept == 0:
		return ReplicasHeard{}, fleet.Errorf(fleet.Gone, "the connection of the digest has ended")
	}
	var out ReplicasHeard
	if d := r.Digest; d.Missing+d.Stray > 0 {
		out.Drift = fleet.Drift{fleet.DriftMissing: d.Missing, fleet.DriftStray: d.Stray}
	}
	return out, nil
}

// NodeShard is a part of the nodes.
type NodeShard struct{ Shard, Shards int }

// hashes is the lowest hash of a node's name in a shard: each has a range of the 32 bits, so that an index finds its nodes.
func (s NodeShard) hashes(shard int) int64 { return int64(shard)<<32/int64(s.Shards) - 1<<31 }

// ComparedDigests is what comparing a page of nodes came to.
type ComparedDigests struct {
	// Last is the last node of the page, "" if no page follows.
	Last string
	// Looked counts the nodes that were compared replica by replica: all others are equal and healthy. Drift counts the
	// differences, not again while a node has not answered; Asked are the nodes that were requested to report.
	Looked int
	Drift  fleet.Drift
	Asked  []fleet.NodeName
}

// CompareDigests compares a page of the newest digests of a shard's nodes with the rows of their replicas (F25, F46).
// Of a node that differs it requests a complete report, which alone corrects anything.
func (s *Store) CompareDigests(ctx context.Context, in NodeShard, after string, limit int32) (ComparedDigests, error) {
	out := ComparedDigests{Drift: fleet.Drift{}}
	var rows []db.DigestsWithRowsRow
	err := s.Tx(ctx, func(q *db.Queries) (err error) {
		if err := q.FetchInOrder(ctx); err != nil {
			return err
		}
		rows, err = q.DigestsWithRows(ctx, db.DigestsWithRowsParams{
			AfterNode: after, FromHash: in.hashes(in.Shard), BelowHash: in.hashes(in.Shard + 1), MaxRows: limit,
		})
		return err
	})
	if err != nil {
		return out, err
	}
	if out.Looked = len(rows); out.Looked == int(limit) {
		out.Last = rows[len(rows)-1].Node
	}
	var ask db.RequestReportsParams
	for _, r := range rows {
		drift, err := driftOf(r)
		if err != nil {
			return out, err
		}
		if !drift.Any() {
			continue
		}
		if !r.Asked {
			for kind, n := range drift {
				out.Drift[kind] += n
			}
		}
		ask.Nodes, ask.Ats, out.Asked = append(ask.Nodes, r.Node), append(ask.Ats, r.At), append(out.Asked, fleet.NodeName(r.Node))
	}
	if len(ask.Nodes) == 0 {
		return out, nil
	}
	return out, s.Q.RequestReports(ctx, ask)
}

// driftOf compares one digest, if it counts.
func driftOf(r db.DigestsWithRowsRow) (fleet.Drift, error) {
	if decide.IgnoreDigest(fleet.DigestSeen{
		Digest: fleet.SetVersion{Era: r.Era, Number: r.Version}, Set: fleet.SetVersion{Era: r.RegionEra, Number: r.SetVersion},
		After: r.After, Reports: r.Reports, Connected: r.Connected,
	}) != "" {
		return nil, nil
	}
	n := fleet.NodeSeen{Node: fleet.NodeName(r.Node), Rows: make([]fleet.ReplicaRow, len(r.Ids)), Listed: make([]fleet.ReplicaID, len(r.Listed))}
	for i, id := range r.Ids {
		n.Rows[i] = fleet.ReplicaRow{
			ReplicaMark: fleet.ReplicaMark{
				ID: fleet.ReplicaID(id), Revision: r.Revisions[i], ProcessVersion: r.ProcessVersions[i], Definition: r.Definitions[i],
				Phase: fleet.ReplicaPhase(r.Phases[i]), Health: fleet.ReplicaHealth(r.Healths[i]), Unready: r.Unreadies[i],
			},
			State: fleet.ReplicaState(r.States[i]), Lost: r.Losts[i],
		}
	}
	for i, id := range r.Listed {
		n.Listed[i] = fleet.ReplicaID(id)
	}
	var err error
	if n.Marks, err = marksOf(r.Marks); err != nil {
		return nil, fmt.Errorf("digest of node %s: %w", r.Node, err)
	}
	return decide.RuntimeDrift(n), nil
}

// markFields is how many words a line of a kept digest has at least. An unready replica has one more, so that the lines of
// others are those of the build before.
const (
	markFields  = 6
	markUnready = "unready"
)

// marksText has a line for each mark.
func marksText(marks []fleet.ReplicaMark) string {
	var b strings.Builder
	for _, m := range marks {
		fmt.Fprintf(&b, "%s %d %d %s %s %s", m.ID, m.Revision, m.ProcessVersion, m.Definition, m.Phase, m.Health)
		if m.Unready {
			b.WriteString(" " + markUnready)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func marksOf(text string) ([]fleet.ReplicaMark, error) {
	marks := make([]fleet.ReplicaMark, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		line, unready := strings.CutSuffix(strings.TrimSuffix(line, "\n"), " "+markUnready)
		f := strings.SplitN(line, " ", markFields)
		if len(f) != markFields {
			return nil, fleet.Errorf(fleet.Internal, "invalid line %.80q; it is replaced by the node's next digest", line)
		}
		m := fleet.ReplicaMark{ID: fleet.ReplicaID(f[0]), Definition: f[3], Phase: fleet.ReplicaPhase(f[4]), Health: fleet.ReplicaHealth(f[5]), Unready: unready}
		var err error
		if m.Revision, err = strconv.ParseInt(f[1], 10, 64); err == nil {
			m.ProcessVersion, err = strconv.ParseInt(f[2], 10, 64)
		}
		if err != nil {
			return nil, fleet.Errorf(fleet.Internal, "invalid line %.80q; it is replaced by the node's next digest", line)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// DigestAge is the age of the oldest of the newest digests of connected nodes, 0 without any. Nodes of builds without
// digests have none.
func (s *Store) DigestAge(ctx context.Context) (time.Duration, error) {
	seconds, err := s.Q.OldestDigest(ctx)
	return postgres.SecondsOf(seconds), err
}

// others finds the replicas of a complete report that run other content than their rows say: those are replaced. A
// report by an older set than the newest says nothing about content (F55).
func (r *reporting) others(ctx context.Context, rows []db.Replica, said map[string]fleet.ReplicaStatus) error {
	var found []db.Replica
	for _, row := range rows {
		if x, is := said[row.ID]; is && fleet.ReplicaState(row.State).Live() && decide.OtherContent(contentOf(row), contentSaid(x)) {
			found = append(found, row)
		}
	}
	if !r.report.Complete || len(found) == 0 {
		return nil
	}
	set, err := r.q.NodeSet(ctx, string(r.report.Node)) // once the rows are locked, which change with it
	if err != nil || set.Version != r.held {
		return err
	}
	r.other = map[fleet.DeploymentName][]fleet.ReplicaStep{}
	for _, row := range found {
		name := fleet.DeploymentName(row.Deployment)
		r.other[name] = append(r.other[name], fleet.ReplicaStep{
			ID: fleet.ReplicaID(row.ID), Reason: decide.ReasonOtherContent, Message: fmt.Sprintf("node %s runs other content than was released to it", row.Node),
		})
	}
	return nil
}

func contentOf(r db.Replica) fleet.ReplicaMark {
	return fleet.ReplicaMark{
		Revision: r.Revision, ProcessVersion: r.ProcessVersion, Definition: fleet.ShortHash(postgres.HashText(r.Definition)),
	}
}

func contentSaid(s fleet.ReplicaStatus) fleet.ReplicaMark {
	return fleet.ReplicaMark{Revision: s.Revision, ProcessVersion: s.ProcessVersion, Definition: s.Definition}
}

// replaceOthers ends, by name, what runs other content: its deployments create new replicas.
func (s *Store) replaceOthers(ctx context.Context, others map[fleet.DeploymentName][]fleet.ReplicaStep) error {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if err := s.terminateReplicas(ctx, name, others[name]); err != nil {
			return err
		}
	}
	return nil
}
