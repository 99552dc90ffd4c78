//go:build !race

package region

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// ledger has all that regions acknowledged, in order. It knows nothing of versions: a write names the state that it replaced.
type ledger struct {
	t       *testing.T
	writes  int
	acks    map[fleet.CopyKey][]*ack
	backups map[fleet.RegionName]int // the last write before
}

// ack is a write that a region acknowledged.
type ack struct {
	n           int
	in          fleet.RegionName
	state, base string // labels; a deletion is a state too
	gone        bool
	undone      bool // by a restore
	// had are the regions that had it when it was undone: each lists it, unless it is restored itself.
	had map[fleet.RegionName]bool
}

// may be missing: it was undone, and nobody has it.
func (a *ack) may() bool { return a.undone && len(a.had) == 0 }

// seen is a state that a region has; v is "" for a deletion.
type seen struct {
	key fleet.CopyKey
	v   string
}

func newLedger(t *testing.T) ledger {
	return ledger{t: t, acks: map[fleet.CopyKey][]*ack{}, backups: map[fleet.RegionName]int{}}
}

func (l *ledger) next() string {
	l.writes++
	return strconv.Itoa(l.writes)
}

// coming is the label that next gives.
func (l *ledger) coming() string { return strconv.Itoa(l.writes + 1) }

func (l *ledger) add(key fleet.CopyKey, a *ack, before *fleet.Object) {
	a.n, a.had = l.writes, map[fleet.RegionName]bool{}
	all := l.acks[key]
	switch {
	case before != nil:
		a.base = before.Labels["v"]
	case len(all) > 0 && all[len(all)-1].gone:
		a.base = all[len(all)-1].state
	}
	l.acks[key] = append(all, a)
}

func (l *ledger) wrote(in fleet.RegionName, key fleet.ObjectKey, v string, out postgres.Written) {
	l.add(keyIn(in, key, out.After), &ack{in: in, state: v}, out.Before)
}

func (l *ledger) deleted(in fleet.RegionName, key fleet.ObjectKey, out postgres.Written) {
	require.NotNil(l.t, out.Before)
	l.add(keyIn(in, key, out.Before), &ack{in: in, state: "gone " + l.next(), gone: true}, out.Before)
}

func keyIn(in fleet.RegionName, key fleet.ObjectKey, o *fleet.Object) fleet.CopyKey {
	if o.Region != "" {
		in = o.Region
	}
	return fleet.CopyKey{Region: in, ObjectKey: key}
}

func (l *ledger) backedUp(in fleet.RegionName) { l.backups[in] = l.writes }

// undone notes that a region is put back: what it wrote since then, and what it had of others.
func (l *ledger) undone(in fleet.RegionName) {
	for _, all := range l.acks {
		for _, a := range all {
			delete(a.had, in)
			a.undone = a.undone || a.in == in && a.n > l.backups[in]
		}
	}
}

// had notes what another region has of what is undone.
func (l *ledger) had(by fleet.RegionName, has []seen) {
	for _, s := range has {
		all := l.acks[s.key]
		for i, a := range all {
			if a.undone && (a.state == s.v || s.v == "" && a.gone && i == len(all)-1) {
				a.had[by] = true
			}
		}
	}
}

// missing says which acknowledged writes are neither there, nor replaced by somebody who had them, nor listed. Where nothing may be
// lost, each write replaces the one before it: only owners wrote.
func (l *ledger) missing(there map[fleet.CopyKey]string, listed map[seen]bool, mayLose bool) (out []string) {
	for key, all := range l.acks {
		last := there[key]
		for i, a := range all {
			if !mayLose && i > 0 && a.base != all[i-1].state {
				out = append(out, fmt.Sprintf("%s: %s of %s replaced %q, not %q", key, a.state, a.in, a.base, all[i-1].state))
			}
			if !a.may() && !l.kept(key, a, last, listed) {
				out = append(out, fmt.Sprintf("%s: %s, which %s acknowledged, is neither there nor listed; there is %q; undone %t, when %v had it", key, a.state, a.in, last, a.undone, a.had))
			}
		}
	}
	for key, v := range there {
		if !slices.ContainsFunc(l.acks[key], func(a *ack) bool { return a.state == v }) {
			out = append(out, fmt.Sprintf("%s: nobody wrote %q", key, v))
		}
	}
	return out
}

// kept reports whether a state is there, listed, or replaced by one that is.
func (l *ledger) kept(key fleet.CopyKey, a *ack, last string, listed map[seen]bool) bool {
	if a.state == last || a.gone && last == "" || listed[seen{key, a.state}] || a.gone && listed[seen{key, ""}] {
		return true
	}
	for _, b := range l.acks[key] {
		if b != a && b.base == a.state && (b.may() && b.in == a.in || l.kept(key, b, last, listed)) {
			return true
		}
	}
	return false
}
