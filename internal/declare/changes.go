package declare

import (
	"encoding/json"
	"slices"

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
	fields, bounds := fieldsBetween("", from, to), m.Spec.Replicas
	if !same && !slices.ContainsFunc(fields, replaces) {
		fields = slices.Insert(fields, 0, fleet.SpecChange{Path: fleet.PathNewRuntimeObject})
	}
	switch idle := !released || m.Spec.State == fleet.StateStopped || min(max(runs.Target, bounds.Min), bounds.Max) == 0; {
	case idle:
		takeAll(fields, fleet.PathDeferred)
	case same: // whatever the table says of a field, nothing is replaced
		takeAll(fields, fleet.PathInPlace)
	default:
		return fields, m.restarts(runs, to, fields)
	}
	return fields, nil
}

// restarts gives those fields that wait for a restart their path. What is started, or scaled up from 0, begins with all.
func (m Made) restarts(runs *fleet.RunningSpec, to []byte, fields []fleet.SpecChange) error {
	starts := slices.ContainsFunc(fields, func(c fleet.SpecChange) bool { return c.Field == "/state" })
	if starts || runs.Target == 0 || runs.Applied.Definition == m.Content().Hash {
		return nil
	}
	waits, err := m.Spec.NeedsRestart(runs.AppliedBody(), m.Definition)
	if err != nil || !waits {
		return err
	}
	applied, err := compose.Canonical(runs.Applied.Spec, compose.Limits{})
	if err != nil {
		return fleet.Errorf(fleet.Internal, "read the spec that is applied: %w", err)
	}
	waiting := fieldsBetween("", applied, to)
	for i, c := range fields {
		if replaces(c) && (c.Field == "" || slices.Contains(waiting, c)) {
			fields[i].Path = fleet.PathNeedsRestart
		}
	}
	return nil
}

// Pending are the fields in which a release that waits for a restart differs from the applied spec, without those that
// hold already.
func Pending(applied, released json.RawMessage) ([]fleet.SpecChange, error) {
	from, err := compose.Canonical(applied, compose.Limits{})
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec that is applied: %w", err)
	}
	to, err := compose.Canonical(released, compose.Limits{})
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec that was released: %w", err)
	}
	fields := slices.DeleteFunc(fieldsBetween("", from, to), func(c fleet.SpecChange) bool { return !replaces(c) })
	if len(fields) == 0 {
		fields = []fleet.SpecChange{{}}
	}
	takeAll(fields, fleet.PathNeedsRestart)
	return fields, nil
}

func replaces(c fleet.SpecChange) bool { return c.Path == fleet.PathNewRuntimeObject }

func takeAll(fields []fleet.SpecChange, path fleet.ChangePath) {
	for i := range fields {
		fields[i].Path = path
	}
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
