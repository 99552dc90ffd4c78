package fleet

import "fmt"

// SetVersion numbers a site's expected set. One of an older era is older, whatever its
// number: a region that was restored counts again from an earlier one.
type SetVersion struct {
	Era    int64 `json:"era"`
	Number int64 `json:"number"`
}

// Newer says whether v comes after o.
func (v SetVersion) Newer(o SetVersion) bool {
	return v.Era > o.Era || v.Era == o.Era && v.Number > o.Number
}

// String is the version as headers carry it: era.number.
func (v SetVersion) String() string { return fmt.Sprintf("%d.%d", v.Era, v.Number) }

// ParseSetVersion reads what String wrote.
func ParseSetVersion(text string) (SetVersion, error) {
	var v SetVersion
	if n, err := fmt.Sscanf(text, "%d.%d", &v.Era, &v.Number); n != 2 || err != nil || v.String() != text || v.Era < 1 || v.Number < 0 {
		return SetVersion{}, Errorf(Invalid, "%.40q is no version of an expected set", text).WithHint("a version reads ERA.NUMBER")
	}
	return v, nil
}

// Headers of the answer that lists a site's expected set.
const (
	HeaderSetVersion = "Holdfast-Set-Version" // era.number
	HeaderSetCount   = "Holdfast-Set-Count"
)

// ExpectedInstance is one line of a site's expected set (N33): what is deployed of an
// instance. What was never deployed is listed only while its delivery is under way.
type ExpectedInstance struct {
	Instance     InstanceName `json:"instanceUniqueName"`
	RevisionHash Hash         `json:"revisionHash"`
	Era          int64        `json:"era"`
	Revision     int64        `json:"revision"`
	RunHash      Hash         `json:"runHash,omitempty"`
	Enabled      bool         `json:"enabled"`
	// InFlight is set while a delivery of it is open or unknown: a node leaves it alone.
	InFlight bool `json:"inFlight,omitempty"`
}

// Version orders it.
func (e ExpectedInstance) Version() Version { return Version{Era: e.Era, Revision: e.Revision} }

// ExpectedSet is what a site's nodes should hold, as it was answered: Count is what the
// region says that it listed.
type ExpectedSet struct {
	Version   SetVersion
	Count     int
	Instances []ExpectedInstance
}

// ReconcileCommand asks a node to compare itself with its site's expected set. It is the
// input of the node's activity: small, its token sealed to the node.
type ReconcileCommand struct {
	ID    string   `json:"id"`
	Site  SiteName `json:"site"`
	Role  Role     `json:"role"`
	Epoch int64    `json:"epoch"`
	// BaseURL is where the set and what it lists are fetched.
	BaseURL string `json:"baseUrl"`
	Token   string `json:"token"`
	// Signed is the region's word for it, without which a node does not act on a task.
	Signed Signature `json:"signed,omitzero"`
}

// ReconcileReport is what came of one comparison. Only numbers and a word reach Temporal;
// Differs goes to the region by the bulk path.
type ReconcileReport struct {
	// Refused says why the set was not acted upon, "" when it was.
	Refused string `json:"refused,omitempty"`
	// Unchanged is set when the region said that the set is the one of the last clean pass.
	Unchanged bool       `json:"unchanged,omitempty"`
	Set       SetVersion `json:"set,omitzero"`
	Expected  int        `json:"expected"`
	Equal     int        `json:"equal"`
	Fetched   int        `json:"fetched"` // missing or stale, and now as expected
	Failed    int        `json:"failed"`  // missing or stale, and still so
	Left      int        `json:"left"`    // under way, or not the node's to change
	Ahead     int        `json:"ahead"`   // held in a higher number than is deployed
	Dropped   int        `json:"dropped"`
	Waiting   int        `json:"waiting"` // for an operator's word
	// Differs names what did not become as expected, at most MaxDiffers.
	Differs []Differs `json:"differs,omitempty"`
}

// MaxDiffers bounds the names of one report.
const MaxDiffers = 100

// Differs is one instance of a node that is not as its region expects, and why.
type Differs struct {
	Instance InstanceName `json:"instance"`
	Why      string       `json:"why"`
}

// Clean says that the node is exactly as the set says.
func (r ReconcileReport) Clean() bool {
	return r.Refused == "" && r.Failed == 0 && r.Left == 0 && r.Ahead == 0 && r.Waiting == 0
}

// Differ adds a name while there is room.
func (r *ReconcileReport) Differ(name InstanceName, why string) {
	if len(r.Differs) < MaxDiffers {
		r.Differs = append(r.Differs, Differs{name, why})
	}
}

// Extra is what a node holds and the expected set does not list.
type Extra struct {
	Instance InstanceName `json:"instance"`
	Version  Version      `json:"version"`
	Hash     Hash         `json:"revisionHash"`
}

// InstanceRevision is a revision of an instance that goes by its name.
type InstanceRevision struct {
	Instance InstanceName
	Revision Revision
}

// Absence answers what is to become of the extras that a node named. Drop are deletes by
// the tombstones' numbers; the rest stays, with the reason.
type Absence struct {
	Drop []RefreshDeploymentCommand `json:"drop"`
	Wait []Differs                  `json:"wait"`
	Keep []Differs                  `json:"keep"`
}

// The reasons why a node's extra instance is not dropped; they are a stable API.
const (
	OrphanNeverKnown = "never_known" // the region never knew the name
	OrphanOverCap    = "over_cap"    // more than one pass may drop
)

// StopSeen is a delete or disable that is deployed or desired, and what the region knows of it.
type StopSeen struct {
	InstanceRevision
	Deployed bool
	Staged   bool // its delivery waits for its window
	Awaited  bool // an operation of the instance runs
	Owed     bool // to whichever node
}

// AbsenceSeen is what the region knows of a name that a node holds and the set does not list.
type AbsenceSeen struct {
	// Known is set when anything was ever released under the name.
	Known bool
	// Deployed is what the site's active applied last, zero when nothing.
	Deployed Revision
	UnderWay bool // a delivery is open or unknown
	Owed     bool // to this node
	Approved bool // an operator let this very revision go
	Listed   bool // it waits for an operator already
	Held     Version
}

// AbsenceDo is what becomes of an extra instance of a node.
type AbsenceDo string

// It is dropped, waits for an operator, or is kept: the reason is the rule.
const (
	AbsenceDrop AbsenceDo = "drop"
	AbsenceWait AbsenceDo = "wait"
	AbsenceKeep AbsenceDo = "keep"
)
