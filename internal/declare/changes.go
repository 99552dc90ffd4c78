package declare

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Changes are the fields in which a declaration differs from what runs, each with its path (F51); none if nothing was
// released. Released says that the write releases it.
func (m Made) Changes(runs *fleet.RunningSpec, released bool) ([]fleet.SpecChange, error) {
	if runs == nil {
		return nil, nil
	}
	from, err := compose.Canonical(runs.Spec, compose.Limits{})
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec that runs: %w", err)
	}
	to, err := json.Marshal(m.Spec)
	if err == nil {
		to, err = compose.Canonical(to, compose.Limits{})
	}
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "write the spec: %w", err)
	}
	same := runs.Definition == m.Content().Hash
	if !same {
		if same, err = fleet.SameRuntimeObject(runs.Body, m.Definition); err != nil {
			return nil, err
		}
	}
	bounds := m.Spec.Replicas
	idle := !released || m.Spec.State == fleet.StateStopped || min(max(runs.Target, bounds.Min), bounds.Max) == 0
	return withPaths(fieldsBetween("", from, to), same, idle), nil
}

// withPaths has what is known of the whole override what the table says of a field.
func withPaths(fields []fleet.SpecChange, same, idle bool) []fleet.SpecChange {
	replaced := false
	for _, f := range fields {
		replaced = replaced || f.Path == fleet.PathNewRuntimeObject
	}
	if !same && !replaced {
		fields = append([]fleet.SpecChange{{Path: fleet.PathNewRuntimeObject}}, fields...)
	}
	for i := range fields {
		switch {
		case idle:
			fields[i].Path = fleet.PathDeferred
		case same:
			fields[i].Path = fleet.PathInPlace
		}
	}
	return fields
}

// fieldsBetween lists the fields below a pointer that differ between two canonical texts, in order. What is only on
// one side is compared with nothing, so that its fields are listed.
func fieldsBetween(at string, from, to []byte) (all []fleet.SpecChange) {
	add := func(c fleet.SpecChange) {
		if len(all) == 0 || all[len(all)-1] != c {
			all = append(all, c)
		}
	}
	for _, c := range (compose.Comparison{}).Compare(from, to).Changes {
		was, is := c.From, c.To
		if was == nil {
			was = []byte("{}")
		}
		if is == nil {
			is = []byte("{}")
		}
		if c.Op == compose.OpReplace || was[0] != '{' || is[0] != '{' {
			add(fleet.SpecChangeAt(at + c.Path))
			continue
		}
		for _, below := range fieldsBetween(at+c.Path, was, is) {
			add(below)
		}
	}
	return all
}
