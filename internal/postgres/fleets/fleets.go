package fleets

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// FleetPut declares a fleet change, and starts a run of it unless Start is unset.
type FleetPut struct {
	postgres.Write
	Spec   fleet.FleetSpec
	Start  bool
	Reason string
}

// FleetMember is a selected instance.
type FleetMember = fleet.FleetMember

// FleetTurn asks something of a fleet change. On is "" to run what is declared (joining the
// run that is under way), else pause, resume, cancel, retry or rollback.
type FleetTurn struct {
	postgres.Write
	On     fleet.FleetEvent
	Reason string
}

// FleetPage asks for the next targets of a site in a wave.
type FleetPage struct {
	Fleet fleet.FleetName
	Run   int64
	Wave  int
	Site  fleet.SiteName
	State fleet.FleetTargetState // waiting, or staged
	Limit int
}

// FleetTarget is an instance that a run has to change, with what its change is made from.
type FleetTarget struct {
	Instance   fleet.InstanceName
	Project    fleet.ProjectName
	Labels     map[string]string
	Generation int64
	Spec       fleet.InstanceSpec
	// Revision was released by this run before, and is only to be delivered; 0 else.
	Revision int64
	// Restore is what a rollback writes; nil of other runs.
	Restore *FleetRestore
	// Refused is why nothing can be written (it is gone, or was never deployed before).
	Refused error
}

// FleetRestore is a revision that is written again.
type FleetRestore struct {
	Spec    fleet.InstanceSpec
	Content fleet.Content
	RunJSON json.RawMessage
	RunHash fleet.Hash
}

// FleetOutcome ends a target that no batch has.
type FleetOutcome struct {
	Instance fleet.InstanceName
	State    fleet.FleetTargetState // unchanged, superseded or failed
	Reason   fleet.Kind
	Message  string
}

// FleetRun is one going of a fleet change over its instances.
type FleetRun struct {
	Fleet       fleet.FleetName
	Run         int64
	Generation  int64
	RollbackOf  int64
	Spec        fleet.FleetSpec
	State       fleet.FleetState
	Reason      string
	Message     string
	Cancel      bool
	Wave, Waves int
	Until       int  // the wave after which it ends by itself
	Retrying    bool // only those that failed
	RequestedBy string
	CreatedAt   time.Time
	Deadline    time.Time
	EndedAt     *time.Time
	Counts      fleet.FleetCounts         // of all its waves
	PerWave     map[int]fleet.FleetCounts // filled for one run, not in lists
	// Proving is how many commands of its wave have not run for long enough yet; filled in like Opens.
	Proving int
	// Opens is when the window opens that what was fetched waits for; who can read zones fills it in.
	Opens time.Time
}

// FleetTargetView is one instance of a run, as lists show it.
type FleetTargetView struct {
	Site     fleet.SiteName
	Instance fleet.InstanceName
	Wave     int
	State    fleet.FleetTargetState
	Revision int64
	Before   int64
	Tries    int
	Delivery fleet.DeliveryID
	Reason   string
	Message  string
	Updated  time.Time
}

// FleetTargetFilter narrows a list of targets; zero values do not.
type FleetTargetFilter struct {
	Fleet     fleet.FleetName
	Run       int64
	State     fleet.FleetTargetState
	AfterSite fleet.SiteName
	AfterName fleet.InstanceName
	Limit     int32
}
