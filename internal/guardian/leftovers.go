package guardian

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// sweepLimit is how long killed processes may take to end; only one that hangs in the kernel takes long.
const sweepLimit = 10 * time.Second

// sweep kills what a dead guardian left and returns when it is gone. The caller holds the lock, so no process
// adds to it.
func sweep(ctx context.Context, st state) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	if st.Stopped || st.BootID != boot {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	for {
		table, err := processes()
		if err != nil {
			return err
		}
		left := leftovers(table, st)
		if len(left) == 0 {
			return nil
		}
		if err := killAndWait(ctx, left); err != nil {
			return fmt.Errorf("kill what a dead guardian left: %w", err)
		}
	}
}

// leftovers are the processes of dead guardians: see the package comment. Each environment is read once for all
// guardians.
func leftovers(table []entry, states ...state) []entry {
	var roots []int
	var left []entry
	known := remains(table, states)
	for _, e := range table {
		if !e.Zombie && known.include(e) {
			roots = append(roots, e.PID)
			left = append(left, e)
		}
	}
	return append(left, descendants(table, roots...)...)
}

// lost identifies the processes that dead guardians may have left.
type lost struct {
	commands map[process]bool
	groups   map[int]state    // by a number that can still be the command's group
	cookies  map[string]state // by the value that its processes carry
	oldest   uint64
}

func remains(table []entry, states []state) lost {
	l := lost{
		commands: map[process]bool{}, groups: map[int]state{}, cookies: map[string]state{}, oldest: math.MaxUint64,
	}
	starts := make(map[int]uint64, len(table))
	for _, e := range table {
		starts[e.PID] = e.Start
	}
	for _, st := range states {
		l.commands[st.Command], l.oldest = true, min(l.oldest, st.From)
		if st.Cookie != "" { // else every process without a value would match
			l.cookies[st.Cookie] = st
		}
		if st.groupLives(starts) {
			l.groups[st.Command.PID] = st
		}
	}
	return l
}

func (l lost) include(e entry) bool {
	if e.Start < l.oldest {
		return false // too old; this avoids reading every environment of the machine
	}
	if st, ok := l.groups[e.Group]; ok && e.Session == st.Session && e.Start >= st.From || l.commands[e.process] {
		return true
	}
	st, ok := l.cookies[carried(e.PID, cookieVar)]
	return ok && e.Start >= st.From
}

// groupLives tells whether the number of the command's group can still be that group. The kernel reuses no pid
// that is the number of a living group, so a newer process of that pid proves that the group is gone.
func (st state) groupLives(starts map[int]uint64) bool {
	start, taken := starts[st.Command.PID]
	return st.Command.PID > 0 && (!taken || start == st.Command.Start)
}

func killAndWait(ctx context.Context, left []entry) error {
	var handles []*handle
	var errs []error
	for _, e := range left {
		h, err := e.open()
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		handles = append(handles, h)
		errs = append(errs, h.signal(unix.SIGKILL))
	}
	for _, h := range handles {
		if errors.Join(errs...) == nil {
			errs = append(errs, h.wait(ctx))
		}
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}
