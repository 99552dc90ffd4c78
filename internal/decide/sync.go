package decide

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ReasonOtherContent is the reason of a replica that is replaced because its node runs other content.
const ReasonOtherContent = "other_content"

// digestRules are why a digest is ignored. Its node sends one only when all of its reports are acknowledged. So a
// digest of the newest set, with no report after it, describes the same instant as the rows: whatever changes a row
// raises the number of the set or is a report, or the node is disconnected.
var digestRules = []struct {
	name string
	when func(s fleet.DigestSeen) bool
}{
	{"disconnected", func(s fleet.DigestSeen) bool { return !s.Connected }},
	{"another_set", func(s fleet.DigestSeen) bool { return s.Digest != s.Set }},
	{"reported_since", func(s fleet.DigestSeen) bool { return s.After != s.Reports }},
}

// IgnoreDigest is why a digest must not be compared with the rows, "" to compare it (F50, F55).
func IgnoreDigest(s fleet.DigestSeen) string {
	for _, r := range digestRules {
		if r.when(s) {
			return r.name
		}
	}
	return ""
}

// RuntimeDrift compares a digest that counts with the rows of its node (F25). It finds only what a complete report
// then corrects: an accepted one leaves no drift.
func RuntimeDrift(n fleet.NodeSeen) fleet.Drift {
	var drift fleet.Drift
	count := func(kind fleet.DriftKind) {
		if drift == nil {
			drift = fleet.Drift{}
		}
		drift[kind]++
	}
	rows, marks := n.Rows, n.Marks
	for len(rows) > 0 || len(marks) > 0 {
		switch {
		case len(marks) == 0 || len(rows) > 0 && rows[0].ID < marks[0].ID:
			if !rows[0].Lost { // a lost one is replaced already
				count(fleet.DriftMissing)
			}
			rows = rows[1:]
		case len(rows) == 0 || marks[0].ID < rows[0].ID:
			if marks[0].Phase != fleet.PhaseStopped && !n.Knows(marks[0].ID) {
				count(fleet.DriftStray)
			}
			marks = marks[1:]
		default:
			if kind := ReplicaDrift(rows[0], marks[0]); kind != "" {
				count(kind)
			}
			rows, marks = rows[1:], marks[1:]
		}
	}
	return drift
}

// ReplicaDrift compares one replica, "" if equal. A replica that must end may be of any content.
func ReplicaDrift(row fleet.ReplicaRow, mark fleet.ReplicaMark) fleet.DriftKind {
	said := fleet.ReplicaStatus{ID: mark.ID, Phase: mark.Phase, Health: mark.Health}
	seen := fleet.ReplicaSeen{ID: row.ID, State: row.State, Health: row.Health, Phase: row.Phase}
	switch {
	case row.State != fleet.ReplicaTerminating && OtherContent(row.ReplicaMark, mark):
		return fleet.DriftVersion
	case row.Lost, row.Phase != mark.Phase, row.Health != mark.Health, row.Unready != mark.Unready, len(ReplicaReported(seen, said)) > 0:
		return fleet.DriftState
	}
	return ""
}

// OtherContent reports whether a node runs a replica with other content than the region's row of it. A node of a
// build without digests does not say what it runs.
func OtherContent(row, mark fleet.ReplicaMark) bool {
	return mark.Definition != "" && !row.SameContent(mark)
}
