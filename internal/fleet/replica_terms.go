package fleet

import (
	"encoding/json"
	"reflect"
	"time"
)

// ReplicaTerms are what a release changes of a running replica without a new process. The zero value means those of its
// definition: they stay in the definition, for nodes of a build that reads them only there.
type ReplicaTerms struct {
	Recovery Recovery `json:"recovery"`
	CheckTerms
	// Readiness are those of the second check, zero without one.
	Readiness CheckTerms `json:"readiness,omitzero"`
}

// CheckTerms are the numbers of a check. Times are in seconds. The zero value means those of its definition.
type CheckTerms struct {
	Interval           float64 `json:"interval,omitempty"`
	Timeout            float64 `json:"timeout,omitempty"`
	UnhealthyThreshold int     `json:"unhealthy_threshold,omitempty"`
	HealthyThreshold   int     `json:"healthy_threshold,omitempty"`
}

// Shows is how long its checks need to show a failure.
func (t ReplicaTerms) Shows() time.Duration { return max(t.CheckTerms.shows(), t.Readiness.shows()) }

func (t CheckTerms) shows() time.Duration {
	return seconds(t.Interval * float64(t.UnhealthyThreshold))
}

// Terms are those of the definition itself.
func (d Definition) Terms() ReplicaTerms {
	return ReplicaTerms{Recovery: d.Recovery.WithDefaults(), CheckTerms: d.Health.terms(), Readiness: d.Readiness.terms()}
}

// Under is the definition with other terms.
func (d Definition) Under(t ReplicaTerms) Definition {
	if t == (ReplicaTerms{}) {
		return d
	}
	d.Recovery, d.Health, d.Readiness = t.Recovery, d.Health.under(t.CheckTerms), d.Readiness.under(t.Readiness)
	return d
}

func (h *HealthCheck) terms() CheckTerms {
	if h == nil || h.Type == HealthNone {
		return CheckTerms{}
	}
	c := h.WithDefaults()
	return CheckTerms{c.Interval, c.Timeout, c.UnhealthyThreshold, c.HealthyThreshold}
}

func (h *HealthCheck) under(t CheckTerms) *HealthCheck {
	if h == nil || h.Type == HealthNone || t == (CheckTerms{}) {
		return h
	}
	c := *h
	c.Interval, c.Timeout, c.UnhealthyThreshold, c.HealthyThreshold = t.Interval, t.Timeout, t.UnhealthyThreshold, t.HealthyThreshold
	return &c
}

// Amended is the definition with the terms and the stop time of another one. Of a check that the other has not, the
// numbers stay.
func (d Definition) Amended(by Definition) Definition {
	d.StopSeconds = by.StopSeconds
	return d.Under(by.Terms())
}

// SameRuntimeObject reports whether a running replica of one definition can become one of the other without a new
// process: they differ at most in terms and stop time. What this build does not know counts as different.
func SameRuntimeObject(a, b []byte) (bool, error) {
	was, err := runtimeObject(a)
	if err != nil {
		return false, err
	}
	is, err := runtimeObject(b)
	return reflect.DeepEqual(was, is), err
}

// runtimeObject is a definition without what reaches a running replica.
func runtimeObject(definition []byte) (map[string]any, error) {
	var all map[string]any
	if err := json.Unmarshal(definition, &all); err != nil {
		return nil, Errorf(Internal, "read a definition: %w", err)
	}
	delete(all, "stopSeconds")
	delete(all, "recovery")
	for _, name := range []string{"health", "readiness"} {
		check, _ := all[name].(map[string]any) // of none there is nothing to leave out
		for _, term := range []string{"interval", "timeout", "unhealthy_threshold", "healthy_threshold"} {
			delete(check, term)
		}
	}
	return all, nil
}
