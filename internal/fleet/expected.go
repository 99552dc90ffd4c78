package fleet

import "fmt"

// SetVersion numbers a site's expected set. One of an older era is older, whatever its number: a restored region
// counts again from an earlier number.
type SetVersion struct {
	Era    int64 `json:"era"`
	Number int64 `json:"number"`
}

// Newer reports whether v comes after o.
func (v SetVersion) Newer(o SetVersion) bool {
	return v.Era > o.Era || v.Era == o.Era && v.Number > o.Number
}

// String is the version in headers: era.number.
func (v SetVersion) String() string { return fmt.Sprintf("%d.%d", v.Era, v.Number) }

// ParseSetVersion parses the result of String.
func ParseSetVersion(text string) (SetVersion, error) {
	var v SetVersion
	if n, err := fmt.Sscanf(text, "%d.%d", &v.Era, &v.Number); n != 2 || err != nil || v.String() != text || v.Era < 1 || v.Number < 0 {
		return SetVersion{}, Errorf(Invalid, "invalid version %.40q of an expected set", text).WithHint("want ERA.NUMBER")
	}
	return v, nil
}

// Headers of the response that lists a site's expected set.
const (
	HeaderSetVersion = "Holdfast-Set-Version" // era.number
	HeaderSetCount   = "Holdfast-Set-Count"
)

// ExpectedInstance is one line of a site's expected set (N33): the deployed revision of an instance. An instance
// that was never deployed is listed only while its delivery is under way.
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

// ExpectedSet is what a site's nodes should hold, as received. Count is how many lines the region wrote.
type ExpectedSet struct {
	Version   SetVersion
	Count     int
	Instances []ExpectedInstance
}

// ReconcileCommand asks a node to compare itself with its site's expected set. It is the input of the node's
// activity: small, with a token sealed to the node.
type ReconcileCommand struct {
	ID    string   `json:"id"`
	Site  SiteName `json:"site"`
	Role  Role     `json:"role"`
	Epoch int64    `json:"epoch"`
	// BaseURL is where the set and what it lists are fetched.
	BaseURL string `json:"baseUrl"`
	Token   string `json:"token"`
	// Files has the node also hash the files that it delivered, because a person asked. It is no term of the
	// signature: it only costs the node some reading.
	Files bool `json:"files,omitempty"`
	// Signed is the region's signature, without which a node ignores a task.
	Signed Signature `json:"signed,omitzero"`
}

// ReconcileReport is the result of one comparison. Only numbers and a word reach Temporal; Differs goes to the
// region by the bulk path.
type ReconcileReport struct {
	// Refused is why the node ignored the set, "" if it did not.
	Refused string `json:"refused,omitempty"`
	// Unchanged is set if the region answered that the set is still that of the last clean pass.
	Unchanged bool       `json:"unchanged,omitempty"`
	Set       SetVersion `json:"set,omitzero"`
	Expected  int        `json:"expected"`
	Equal     int        `json:"equal"`
	Fetched   int        `json:"fetched"` // missing or stale, and now as expected
	Failed    int        `json:"failed"`  // missing or stale, and still so
	Left      int        `json:"left"`    // under way, or not for the node to change
	Ahead     int        `json:"ahead"`   // held with a higher number than the deployed one
	Dropped   int        `json:"dropped"`
	Waiting   int        `json:"waiting"` // for an operator
	// Restored counts delivered files that had been changed or removed, and were written again.
	Restored int `json:"restored,omitempty"`
	// Differs lists what does not match the set, and the files that were restored, at most MaxDiffers.
	Differs []Differs `json:"differs,omitempty"`
}

// MaxDiffers limits the names of one report.
const MaxDiffers = 100

// Differs is one instance of a node that does not match the set, and why.
type Differs struct {
	Instance InstanceName `json:"instance"`
	Why      string       `json:"why"`
}

// Clean reports whether the node matches the set exactly.
func (r ReconcileReport) Clean() bool {
	return r.Refused == "" && r.Failed == 0 && r.Left == 0 && r.Ahead == 0 && r.Waiting == 0
}

// Why a delivered file was written again; they are a stable API.
const (
	FileChanged = "file_changed"
	FileMissing = "file_missing"
)

// Differ adds a name, up to MaxDiffers.
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

// InstanceRevision is a revision of a named instance.
type InstanceRevision struct {
	Instance InstanceName
	Revision Revision
}

// Absence is what to do about the extras that a node listed. Drop are deletes with the tombstones' numbers; the
// others stay, with a reason.
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

// StopSeen is a deployed or desired delete or disable, and its state in the region.
type StopSeen struct {
	InstanceRevision
	Deployed bool
	Staged   bool // its delivery waits for its window
	Awaited  bool // an operation of the instance runs
	Owed     bool // to any node
}

// AbsenceSeen is what the region knows of a name that a node holds and the set does not list.
type AbsenceSeen struct {
	// Known is set if anything was ever released under the name.
	Known bool
	// Deployed is what the site's active last applied, zero for nothing.
	Deployed Revision
	UnderWay bool // a delivery is open or unknown
	Owed     bool // to this node
	Approved bool // an operator approved dropping this revision
	Listed   bool // it waits for an operator already
	Held     Version
}

// AbsenceDo is what to do about an extra instance of a node.
type AbsenceDo string

// It is dropped, waits for an operator, or is kept; the rule is the reason.
const (
	AbsenceDrop AbsenceDo = "drop"
	AbsenceWait AbsenceDo = "wait"
	AbsenceKeep AbsenceDo = "keep"
)
