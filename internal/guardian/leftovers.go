package guardian

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sweepLimit is how long killed processes may take to go, which is long only for one that
// hangs in the kernel.
const sweepLimit = 10 * time.Second

// sweep kills what a dead guardian left behind and returns when it is gone. The caller
// holds the lock, so nobody adds to it.
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
		left := st.leftovers(table)
		if len(left) == 0 {
			return nil
		}
		if err := killAndWait(ctx, left); err != nil {
			return fmt.Errorf("kill what a dead guardian left: %w", err)
		}
	}
}

// leftovers are the processes of a dead guardian: see the package comment.
func (st state) leftovers(table []entry) []entry {
	group := st.groupLives(table)
	var roots []int
	var left []entry
	for _, e := range table {
		if e.Zombie || e.Start < st.From {
			continue // too old to be one; spares reading every environment of the machine
		}
		inGroup := group && e.Group == st.Command.PID && e.Session == st.Session
		if e.process == st.Command || inGroup || carries(e.PID, cookieVar+"="+st.Cookie) {
			roots = append(roots, e.PID)
			left = append(left, e)
		}
	}
	return append(left, descendants(table, roots...)...)
}

// groupLives says whether the number of the command's group can still mean that group. The
// kernel gives no pid away that is a living group's number, so a newer process of that pid
// proves that the group is gone.
func (st state) groupLives(table []entry) bool {
	if st.Command.PID <= 0 {
		return false
	}
	for _, e := range table {
		if e.PID == st.Command.PID && e.Start != st.Command.Start {
			return false
		}
	}
	return true
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
