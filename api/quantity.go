package api

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Memory is bytes. In JSON it is a number, or a text such as "512Mi".
type Memory int64

// memoryUnits are tried in order: the longer ones first.
var memoryUnits = []struct {
	suffix string
	bytes  float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1},
}

func notMemory(raw []byte) error {
	return fleet.Errorf(Invalid, "invalid amount of memory %.40s: want bytes, or a text with Ki, Mi, Gi, Ti, k, M, G or T", raw).
		WithHint(`for example "512Mi"`)
}

// UnmarshalJSON reads either form.
func (m *Memory) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if text == "null" {
		return nil // says the same as leaving it out
	}
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return notMemory(raw)
		}
	}
	i := slices.IndexFunc(memoryUnits, func(u struct {
		suffix string
		bytes  float64
	},
	) bool {
		return strings.HasSuffix(text, u.suffix)
	})
	unit := memoryUnits[i]
	number := strings.TrimSuffix(text, unit.suffix)
	if strings.Trim(number, "0123456789.") != "" {
		return notMemory(raw)
	}
	n, err := strconv.ParseFloat(number, 64)
	if bytes := n * unit.bytes; err == nil && bytes == math.Trunc(bytes) && bytes <= 1<<53 {
		*m = Memory(bytes)
		return nil
	}
	return notMemory(raw)
}

// ReplicaCounts bound how many replicas there are, and say with how many a new deployment
// starts. In JSON it is an object, or one number for exactly so many.
type ReplicaCounts struct {
	Min     *int `json:"min,omitempty" doc:"1 by default"`
	Max     *int `json:"max,omitempty" doc:"10 by default, or more if the others are"`
	Initial *int `json:"initial,omitempty" doc:"of a new deployment: min by default, or 1"`
}

// Exactly is that many replicas, which scaling does not change.
func Exactly(n int) ReplicaCounts { return ReplicaCounts{Min: &n, Max: &n, Initial: &n} }

// UnmarshalJSON reads either form.
func (c *ReplicaCounts) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if len(raw) > 0 && raw[0] != '{' {
		n, err := strconv.Atoi(string(raw))
		if err != nil {
			return fleet.Errorf(Invalid, "invalid count of replicas %.40s: want a whole number, or an object with min, max and initial", raw)
		}
		*c = Exactly(n)
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fleet.Errorf(Invalid, "malformed JSON")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		into := map[string]**int{"min": &c.Min, "max": &c.Max, "initial": &c.Initial}[name]
		if into == nil {
			return fleet.Errorf(Invalid, "unknown field; use %s", fleet.OrList([]string{"min", "max", "initial"})).At(fleet.CutField("/" + name))
		}
		if err := json.Unmarshal(members[name], into); err != nil {
			return fleet.Errorf(Invalid, "invalid value: must be a whole number").At("/" + name)
		}
	}
	return nil
}

// Bounds fills in what was left out. Nothing is mended: bounds that contradict each other are
// refused with the spec.
func (c ReplicaCounts) Bounds() ReplicaBounds {
	b := ReplicaBounds{Min: fleet.DefaultMinReplicas}
	if c.Min != nil {
		b.Min = *c.Min
	} else if c.Max != nil {
		b.Min = min(b.Min, *c.Max)
	}
	b.Initial = max(b.Min, 1)
	if c.Initial != nil {
		b.Initial = *c.Initial
	}
	b.Max = max(fleet.DefaultMaxReplicas, b.Min, b.Initial)
	if c.Max != nil {
		b.Max = *c.Max
		if c.Initial == nil {
			b.Initial = min(b.Initial, b.Max)
		}
	}
	return b
}
