package api

import (
	"encoding/json"
	"time"
)

// FleetPut declares a fleet change: what changes of which instances, and how it moves over
// them in waves.
type FleetPut struct {
	Project          string            `json:"project,omitempty"`
	Service          string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels           map[string]string `json:"labels,omitempty"`
	Change           FleetChange       `json:"change"`
	Selector         FleetSelector     `json:"selector,omitzero"`
	Waves            []FleetWave       `json:"waves,omitempty" doc:"taken in order; what none names comes in a last one"`
	SuccessThreshold float64           `json:"successThreshold,omitempty" doc:"percentage of a wave that must succeed before the next begins; 100 less errorThreshold by default"`
	ErrorThreshold   float64           `json:"errorThreshold,omitempty" doc:"percentage of a wave that may fail; one more stops the change"`
	MinRunSeconds    *int64            `json:"minRunSeconds,omitempty" doc:"how long the commands that a wave started must run before it ends; one that exits has failed. 10 by default, at most half of deadlineSeconds; 0 waits for nothing"`
	Windows          []Window          `json:"windows,omitempty" doc:"when sites may switch; outside of them a change is fetched and waits"`
	BatchSize        int               `json:"batchSize,omitempty" doc:"instances in one delivery, at most 1000, which is the default"`
	SitesAtOnce      int               `json:"sitesAtOnce,omitempty" doc:"sites that are delivered to at the same time, 4 by default, at most 64"`
	DeadlineSeconds  int64             `json:"deadlineSeconds,omitempty" doc:"of a whole run, one day by default"`
	Reason           string            `json:"reason,omitempty"`
}

// FleetChange is what changes of each instance: the template generation that it pins (0 is
// the one of now), a merge patch (RFC 7396) of its overrides or config, or both.
type FleetChange struct {
	Template           string          `json:"template,omitempty" doc:"of this region, or the copy of one of another region: eu/press"`
	TemplateGeneration int64           `json:"templateGeneration,omitempty"`
	Patch              json.RawMessage `json:"patch,omitempty" doc:"any JSON object"`
}

// FleetStatus is the status of a fleet change: where its newest run stands. PerWave has one
// entry per wave, and only the answer for one fleet change has it.
type FleetStatus struct {
	Phase              string        `json:"phase"`
	Run                int64         `json:"run"`
	ObservedGeneration int64         `json:"observedGeneration"`
	RollbackOf         int64         `json:"rollbackOf,omitempty"`
	Wave               int           `json:"wave"`
	Waves              int           `json:"waves"`
	Counts             FleetCounts   `json:"counts"`
	PerWave            []FleetCounts `json:"perWave,omitempty"`
	Reason             string        `json:"reason,omitempty"`
	Message            string        `json:"message,omitempty"`
	Deadline           *time.Time    `json:"deadline,omitempty"`
	Conditions         []Condition   `json:"conditions"`
}

// FleetRun is one going of a fleet change over its instances.
type FleetRun struct {
	Run        int64       `json:"run"`
	Generation int64       `json:"generation"`
	RollbackOf int64       `json:"rollbackOf,omitempty" doc:"the run that this one takes back"`
	State      FleetState  `json:"state"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Cancelling bool        `json:"cancelling,omitempty" doc:"its end was asked for and has not come yet"`
	Wave       int         `json:"wave"`
	Waves      int         `json:"waves"`
	Counts     FleetCounts `json:"counts"`

	RequestedBy string     `json:"requestedBy"`
	CreatedAt   time.Time  `json:"createdAt"`
	Deadline    time.Time  `json:"deadline"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
}

// FleetTarget is one instance of a run. Before is the revision that was desired when the
// run released its own, Delivery the last one that brought it.
type FleetTarget struct {
	Site      string           `json:"site"`
	Instance  string           `json:"instance"`
	Wave      int              `json:"wave"`
	State     FleetTargetState `json:"state"`
	Revision  int64            `json:"revision,omitempty"`
	Before    int64            `json:"before,omitempty"`
	Tries     int              `json:"tries"`
	Delivery  string           `json:"delivery,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Message   string           `json:"message,omitempty"`
	UpdatedAt time.Time        `json:"updatedAt"`
}

// FleetProgress is how far the run of a fleet change is that an operation speaks of.
type FleetProgress struct {
	Run    int64       `json:"run"`
	State  FleetState  `json:"state"`
	Wave   int         `json:"wave"`
	Waves  int         `json:"waves"`
	Counts FleetCounts `json:"counts" doc:"of all waves"`
}

// FleetTurn is a verb of a fleet change.
type FleetTurn struct {
	Verb    string
	On      FleetEvent // that it asks of the run; "" begins or joins one
	Summary string
}

// FleetTurns are the verbs of a fleet change.
func FleetTurns() []FleetTurn {
	return []FleetTurn{
		{"run", "", "Run what is declared, or join the run that is under way"},
		{"pause", FleetPause, "Begin no further deliveries; those under way end"},
		{"resume", FleetResume, "Resume a paused or stopped run"},
		{"cancel", FleetCancel, "End the run; what it changed stays changed"},
		{"retry", FleetRetry, "Try those instances again that failed, and no others"},
		{"rollback", FleetRollback, "Write again what each instance had before the run, in waves as well"},
	}
}
