package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/region"
)

// machineFlags are what a node says of its machine instead of finding it out.
func machineFlags(cmd *cobra.Command, m *region.NodeMachine) {
	m.GPUs = -1
	f := cmd.Flags()
	f.Var((*labelsFlag)(&m.Labels), "label", "a label by which deployments and pools select the node, KEY=VALUE; may be repeated")
	f.Float64Var(&m.CPU, "cpu", 0, "cores that replicas may have, all of the machine's by default")
	f.Var((*bytesFlag)(&m.Memory), "memory", "memory that replicas may have, bytes or 16Gi, all of the machine's by default")
	f.IntVar(&m.GPUs, "gpus", m.GPUs, "graphics processors that replicas may have, those of the machine by default (-1)")
	f.StringVar(&m.Address, "address", "", "host at which others reach the replicas, by default that of the way to the region")
}

// isolationFlags say how commands of projects are kept apart.
func isolationFlags(cmd *cobra.Command, cfg *region.NodeConfig) {
	cfg.UIDs = isolation.DefaultRange()
	f := cmd.Flags()
	f.Var((*isolationFlag)(&cfg.NoIsolation), "isolation", "uid runs the commands of each project as a user of its own, which needs root; none runs them as the agent's user, and refuses those of other projects than the site's")
	f.Var(&cfg.UIDs, "uid-range", "uids of projects; two agents of one machine need ranges of their own")
}

// isolationFlag is true for none.
type isolationFlag bool

func (i *isolationFlag) String() string {
	if *i {
		return string(fleet.SeparationNone)
	}
	return string(fleet.SeparationUID)
}

func (*isolationFlag) Type() string { return "uid|none" }

// Set takes uid or none.
func (i *isolationFlag) Set(text string) error {
	switch fleet.Separation(text) {
	case fleet.SeparationUID:
		*i = false
	case fleet.SeparationNone:
		*i = true
	default:
		return fleet.Errorf(fleet.Invalid, "want uid or none")
	}
	return nil
}

// labelsFlag takes KEY=VALUE, as often as it is given; a value may hold a comma.
type labelsFlag map[string]string

func (l *labelsFlag) String() string { return labelsText(*l) }

func (*labelsFlag) Type() string { return "KEY=VALUE" }

// Set takes one label.
func (l *labelsFlag) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fleet.Errorf(fleet.Invalid, "want KEY=VALUE")
	}
	if err := fleet.ValidateLabels("label", map[string]string{key: value}); err != nil {
		return err
	}
	if *l == nil {
		*l = labelsFlag{}
	}
	(*l)[key] = value
	return nil
}

// bytesFlag takes bytes, plainly or with a unit.
type bytesFlag int64

func (b *bytesFlag) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (*bytesFlag) Type() string { return "BYTES" }

var errNotBytes = fleet.Errorf(fleet.Invalid, "want bytes, or a number with Ki, Mi, Gi or Ti, for example 512Mi")

// Set takes a number with Ki, Mi, Gi or Ti behind it, or nothing.
func (b *bytesFlag) Set(text string) error {
	number, unit := strings.TrimRight(text, "KMGTi"), int64(1)
	switch text[len(number):] {
	case "":
	case "Ki":
		unit = 1 << 10
	case "Mi":
		unit = 1 << 20
	case "Gi":
		unit = 1 << 30
	case "Ti":
		unit = 1 << 40
	default:
		return errNotBytes
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 || n*float64(unit) >= math.MaxInt64 {
		return errNotBytes
	}
	*b = bytesFlag(n * float64(unit))
	return nil
}
