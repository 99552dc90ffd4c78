package fleet

import (
	"slices"
	"time"
)

// ConditionStatus is whether a condition holds.
type ConditionStatus string

// The statuses.
const (
	ConditionTrue    ConditionStatus = "true"
	ConditionFalse   ConditionStatus = "false"
	ConditionUnknown ConditionStatus = "unknown"
)

// Condition is one side of a status, with a stable reason (X18).
type Condition struct {
	Type    string          `json:"type"`
	Status  ConditionStatus `json:"status"`
	Reason  string          `json:"reason"`
	Message string          `json:"message,omitempty"`
	// Revision is the one that it is about, and Hint the command that helps; only synced has them.
	Revision int64  `json:"revision,omitempty"`
	Hint     string `json:"hint,omitempty"`
	// Since is when the status last changed.
	Since time.Time `json:"since"`
}

// ConditionsSince dates conditions: one with an unchanged status keeps its time, the others get now. It reports
// whether anything other than the time changed.
func ConditionsSince(was, conditions []Condition, now time.Time) (dated []Condition, changed bool) {
	dated = slices.Clone(conditions)
	changed = len(was) != len(conditions)
	for i := range dated {
		c := &dated[i]
		c.Since = now
		at := slices.IndexFunc(was, func(w Condition) bool { return w.Type == c.Type && w.Status == c.Status })
		if at >= 0 {
			c.Since = was[at].Since
		}
		changed = changed || at < 0 || was[at].Reason != c.Reason || was[at].Message != c.Message
	}
	return dated, changed
}
