package fleet

import (
	"encoding/json"
	"reflect"
)

// ReplicaTerms are what a release changes of a running replica without a new process. Times are in seconds. The zero
// value means those of its definition: they stay in the definition, for nodes of a build that reads them only there.
type ReplicaTerms struct {
	Recovery           Recovery `json:"recovery"`
	Interval           float64  `json:"interval,omitempty"`
	Timeout            float64  `json:"timeout,omitempty"`
	UnhealthyThreshold int      `json:"unhealthy_threshold,omitempty"`
	HealthyThreshold   int      `json:"healthy_threshold,omitempty"`
}

// Terms are those of the definition itself.
func (d Definition) Terms() ReplicaTerms {
	t := ReplicaTerms{Recovery: d.Recovery.WithDefaults()}
	if d.Health != nil && d.Health.Type != HealthNone {
		h := d.Health.WithDefaults()
		t.Interval, t.Timeout, t.UnhealthyThreshold, t.HealthyThreshold = h.Interval, h.Timeout, h.UnhealthyThreshold, h.HealthyThreshold
	}
	return t
}

// Under is the definition with other terms.
func (d Definition) Under(t ReplicaTerms) Definition {
	if t == (ReplicaTerms{}) {
		return d
	}
	d.Recovery = t.Recovery
	if d.Health != nil && d.Health.Type != HealthNone {
		h := *d.Health
		h.Interval, h.Timeout, h.UnhealthyThreshold, h.HealthyThreshold = t.Interval, t.Timeout, t.UnhealthyThreshold, t.HealthyThreshold
		d.Health = &h
	}
	return d
}

// Amended is the definition with the terms and the stop time of another one. Of a check that the other has not, the
// numbers stay.
func (d Definition) Amended(by Definition) Definition {
	t := by.Terms()
	if t.Interval == 0 {
		was := d.Terms()
		was.Recovery = t.Recovery
		t = was
	}
	d.StopSeconds = by.StopSeconds
	return d.Under(t)
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
	if check, is := all["health"].(map[string]any); is {
		for _, term := range []string{"interval", "timeout", "unhealthy_threshold", "healthy_threshold"} {
			delete(check, term)
		}
	}
	return all, nil
}
