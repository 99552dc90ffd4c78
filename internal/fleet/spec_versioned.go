package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// UpdateMode is how changes that need a new process reach what runs.
type UpdateMode string

// UpdateVersioned has only a change of what is in renewing replace what runs. All others wait for a restart, or for the
// next change that replaces it. Without a mode, each of them is rolled out.
const UpdateVersioned UpdateMode = "versioned"

// renewing are the places in a definition whose change renews the process version in mode versioned, and takes along
// what waits (F5, F41). The state is another: what is started begins with all that was released.
var renewing = [][]string{
	{"ports"},
	{"health", "type"},
	{"health", "port"},
	{"health", "path"},
	{"readiness", "type"},
	{"readiness", "port"},
	{"readiness", "path"},
	{"resources", "memory"},
}

// NeedsRestart reports whether a release of the spec waits for a restart: its definition needs a new process beside the
// applied one, and nothing in it renews the version (F5, F7).
func (s DeploymentSpec) NeedsRestart(applied, released []byte) (bool, error) {
	if s.Update != UpdateVersioned {
		return false, nil
	}
	if same, err := SameRuntimeObject(applied, released); err != nil || same {
		return false, err
	}
	was, err := jsonTree(applied)
	if err != nil {
		return false, err
	}
	is, err := jsonTree(released)
	if err != nil || s.MemoryKeepsVersion && s.Resources.Memory > 0 {
		return err == nil, err
	}
	return !slices.ContainsFunc(renewing, func(path []string) bool {
		return !reflect.DeepEqual(valueAt(was, path), valueAt(is, path))
	}), nil
}

// AmendedSpec is the applied spec with all that a released one changes in place, and whether that is anything.
func AmendedSpec(applied, released json.RawMessage) (spec json.RawMessage, changed bool, err error) {
	was, err := jsonTree(applied)
	if err != nil {
		return nil, false, err
	}
	is, err := jsonTree(released)
	if err != nil {
		return nil, false, err
	}
	for _, f := range specPaths {
		path := strings.Split(strings.Trim(f.Field, "/"), "/")
		if len(path) > 2 && valueAt(was, path[:len(path)-1]) == nil { // of a check that is not applied
			continue
		}
		if value := valueAt(is, path); f.Path == PathInPlace && !reflect.DeepEqual(valueAt(was, path), value) {
			setAt(was, path, value)
			changed = true
		}
	}
	if spec, err = json.Marshal(was); err != nil {
		return nil, false, Errorf(Internal, "write a spec: %w", err)
	}
	return spec, changed, nil
}

func jsonTree(text []byte) (tree map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, Errorf(Internal, "read a spec or its definition: %w", err)
	}
	return tree, nil
}

// valueAt is nil where there is nothing.
func valueAt(tree map[string]any, path []string) any {
	if len(path) == 1 {
		return tree[path[0]]
	}
	below, _ := tree[path[0]].(map[string]any)
	return valueAt(below, path[1:])
}

func setAt(tree map[string]any, path []string, value any) {
	if len(path) == 1 {
		if delete(tree, path[0]); value != nil {
			tree[path[0]] = value
		}
		return
	}
	below, is := tree[path[0]].(map[string]any)
	if !is {
		if value == nil {
			return
		}
		below = map[string]any{}
		tree[path[0]] = below
	}
	setAt(below, path[1:], value)
}

func (s DeploymentSpec) validateUpdate() error {
	switch {
	case s.Update != "" && s.Update != UpdateVersioned:
		return Errorf(Invalid, "unknown update %.40q", s.Update).At("/update").
			WithHint("use versioned, or omit it to roll out every change that needs a new process")
	case s.MemoryKeepsVersion && s.Update != UpdateVersioned:
		return Errorf(Invalid, "memoryKeepsVersion needs update: versioned").At("/memoryKeepsVersion").
			WithHint("without it every change rolls out: declare update: versioned, or omit memoryKeepsVersion")
	}
	return nil
}
