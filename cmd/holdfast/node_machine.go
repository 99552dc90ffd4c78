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

// machineFlags override what a node detects about its machine.
func machineFlags(cmd *cobra.Command, m *region.NodeMachine) {
	m.GPUs = -1
	f := cmd.Flags()
	f.Var((*labelsFlag)(&m.Labels), "label", "label for deployments and pools to select the node by, KEY=VALUE; may be repeated")
	f.Float64Var(&m.CPU, "cpu", 0, "cores for replicas (default all of the machine's)")
	f.Var((*bytesFlag)(&m.Memory), "memory", "memory for replicas, bytes or 16Gi (default all of the machine's)")
	f.IntVar(&m.GPUs, "gpus", m.GPUs, "GPUs for replicas; -1 means all of the machine's")
	f.StringVar(&m.Address, "address", "", "host at which other machines reach the replicas (default the local address of the connection to the region)")
}

// isolationFlags set how commands of projects are isolated.
func isolationFlags(cmd *cobra.Command, cfg *region.NodeConfig) {
	cfg.UIDs = isolation.DefaultRange()
	f := cmd.Flags()
	f.Var((*isolationFlag)(&cfg.NoIsolation), "isolation", "uid runs the commands of each project as a separate user, which needs root; none runs them as the agent's user, and rejects those of projects other than the site's")
	f.Var(&cfg.UIDs, "uid-range", "uids for projects; two agents on one machine need separate ranges")
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

// Set accepts uid or none.
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

// labelsFlag accepts KEY=VALUE repeatedly; a value may contain a comma.
type labelsFlag map[string]string

func (l *labelsFlag) String() string { return labelsText(*l) }

func (*labelsFlag) Type() string { return "KEY=VALUE" }

// Set adds one label.
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

// bytesFlag accepts bytes, with or without a unit.
type bytesFlag int64

func (b *bytesFlag) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (*bytesFlag) Type() string { return "BYTES" }

var errNotBytes = fleet.Errorf(fleet.Invalid, "want bytes, or a number with Ki, Mi, Gi or Ti, for example 512Mi")

// Set accepts a number, optionally with Ki, Mi, Gi or Ti.
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
