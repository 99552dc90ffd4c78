package replicas

import (
	"encoding/json"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// known is what the node remembers of one replica: a row of its store. Its times are of the boot in Boot.
type known struct {
	fleet.NodeReplica
	Driver fleet.Driver `json:"driver,omitempty"`
	// Gone is set when it was to end and the set no longer lists it: everything of it is removed.
	Gone bool `json:"gone,omitempty"`
	// Asked is set once its driver was asked to run something of it, until its end is seen.
	Asked bool `json:"asked,omitempty"`

	// Phase is one that the agent of the build before knows, Exact the phase beside it that it does not know.
	Phase    fleet.ReplicaPhase  `json:"phase"`
	Exact    fleet.ReplicaPhase  `json:"exact,omitempty"`
	Health   fleet.ReplicaHealth `json:"health"`
	Unready  bool                `json:"unready,omitempty"` // its readiness check has not passed, or fails
	Reason   string              `json:"reason,omitempty"`
	Message  string              `json:"message,omitempty"`
	Restarts int                 `json:"restarts,omitempty"`
	PID      int                 `json:"pid,omitempty"`
	Ports    map[string]int      `json:"ports,omitempty"`
	First    string              `json:"first,omitempty"` // the name of its first port
	GPUs     []int               `json:"gpus,omitempty"`  // the numbers of its GPUs

	// Used counts restarts after failed probes since it was last healthy for long, Alone those after exits while
	// the region was unreachable.
	Used  int `json:"used,omitempty"`
	Alone int `json:"alone,omitempty"`

	Boot string `json:"boot"`
	// Since is when phase or health last changed, Probe the probe state then or at the first success after.
	Since time.Duration     `json:"since"`
	Probe decide.ProbeState `json:"probe"`
	// Failing are the checks that fail, or did when it ended.
	Failing failing `json:"failing,omitzero"`
}

// failing are the checks of a replica that fail; those that pass, or have not failed yet, are zero.
type failing struct {
	Health    failedCheck `json:"health,omitzero"`
	Readiness failedCheck `json:"readiness,omitzero"`
}

// failedCheck is a check, why it fails, and where the replica listens if that is elsewhere.
type failedCheck struct {
	decide.ProbeFailure
	Check   string `json:"check"`
	Listens string `json:"listens,omitempty"`
}

// report is its part of a line, nil for a check that does not fail.
func (f failedCheck) report(now time.Duration) *fleet.ReportedFailure {
	if f.Times == 0 {
		return nil
	}
	return &fleet.ReportedFailure{
		CheckFailure: fleet.CheckFailure{Check: f.Check, Cause: f.Cause, Listens: f.Listens, Times: f.Times}, Age: max(now-f.First, 0),
	}
}

// row is its row in the store.
func (r known) row() (sqlite.Replica, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return sqlite.Replica{}, fleet.Errorf(fleet.Internal, "encode what is known of replica %s: %w", r.ID, err)
	}
	return sqlite.Replica{ID: r.ID, Known: raw}, nil
}

// recall reads a row of the store. After a reboot its times are void, and nothing of it runs.
func recall(row sqlite.Replica, boot string, now time.Duration) (known, error) {
	var r known
	if err := json.Unmarshal(row.Known, &r); err != nil {
		return r, fleet.Errorf(fleet.Internal, "decode the stored state of replica %s: %w", row.ID, err)
	}
	r.ID = row.ID
	if r.Boot != boot {
		r.Boot, r.Since, r.Probe, r.Failing, r.PID, r.Asked = boot, now, decide.ProbeState{}, failing{}, 0, false
	}
	return r, nil
}

// status is its line in a report.
func (r known) status(address string, now time.Duration) fleet.ReplicaStatus {
	st := fleet.ReplicaStatus{
		ID: r.ID, Phase: r.Phase.Exactly(r.Exact), Health: r.Health, Unready: r.Unready, Restarts: r.Restarts, Ports: maps.Clone(r.Ports),
		Reason: r.Reason, Message: sentence(r.Message), Age: max(now-r.Since, 0),
		HealthFailure: r.Failing.Health.report(now), ReadinessFailure: r.Failing.Readiness.report(now),
	}
	if r.Phase == fleet.PhaseRunning {
		st.PID = r.PID
	}
	if port := r.Ports[r.First]; port != 0 {
		st.Endpoint = net.JoinHostPort(address, strconv.Itoa(port))
	}
	return st
}

// passing reports whether the region decides nothing by the state, and the next one may follow at once.
func (r known) passing() bool {
	return r.Phase == fleet.PhasePreparing || r.Phase == fleet.PhaseStopping || r.Phase == fleet.PhaseRunning && r.Health == fleet.HealthNotChecked
}

// readiness is what was known last of its readiness check.
func (r known) readiness() fleet.ReplicaHealth {
	if r.Unready {
		return fleet.HealthUnhealthy
	}
	return fleet.HealthHealthy
}

// maxMessage bounds a message to the region, in bytes.
const maxMessage = 512

// sentence makes a text valid for messages and the store: it may contain any file name.
func sentence(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "?")
}

func wire(st fleet.ReplicaStatus) *nodev1.ReplicaStatus {
	ports := make(map[string]uint32, len(st.Ports))
	for name, port := range st.Ports {
		ports[name] = uint32(port) //nolint:gosec // a port
	}
	return &nodev1.ReplicaStatus{
		Id: string(st.ID), Phase: string(st.Phase.Known()), ExactPhase: string(st.Phase.Exact()), Health: string(st.Health), Restarts: uint32(st.Restarts), //nolint:gosec // small
		Endpoint: st.Endpoint, Ports: ports, Pid: uint32(st.PID), Reason: st.Reason, Message: st.Message, //nolint:gosec // positive
		Age: durationpb.New(st.Age), Deployment: string(st.Deployment), Revision: st.Revision,
		ProcessVersion: st.ProcessVersion, Definition: st.Definition, Unready: st.Unready,
		HealthFailure: wireFailure(st.HealthFailure), ReadinessFailure: wireFailure(st.ReadinessFailure),
	}
}

func wireFailure(f *fleet.ReportedFailure) *nodev1.CheckFailure {
	if f == nil {
		return nil
	}
	return &nodev1.CheckFailure{
		Check: f.Check, Cause: f.Cause, Listens: f.Listens, Times: uint32(f.Times), Age: durationpb.New(f.Age), //nolint:gosec // positive, and small
	}
}
