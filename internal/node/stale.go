package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// staleBy is the reason why an action was refused as stale, as the region lists it.
type staleBy string

func (s staleBy) Error() string { return string(s) }

// stale refuses an action of an earlier right, or of an earlier revision.
func stale(reason staleBy, format string, args ...any) error {
	return &fleet.Error{Kind: fleet.Stale, Message: fmt.Sprintf(format, args...), Err: reason}
}

// refused reports to the region an action that was refused as stale (X21). What the region itself has replaced
// by something newer has no reason, and is only counted.
func (a *Applier) refused(action string, err error) {
	var reason staleBy
	if errors.As(err, &reason) {
		a.opt.Refused(audit.Refusal{Door: audit.DoorNode, Identity: audit.FromRegion, Reason: string(reason), What: action + ": " + err.Error()})
	}
}

// refusals are the refusals still to be reported to the region.
type refusals struct {
	*audit.Window
	now  func() time.Time
	wake chan struct{}
}

// add adds a refusal, and tells whether it gets its own row.
func (r refusals) add(one audit.Refusal) bool {
	row := r.Add(one)
	if row {
		poke.Once(r.wake)
	}
	return row
}

// refusalsPage is how many refusals one call carries.
const refusalsPage = 100

// tellRefusals sends them to the region, apart from other reports. What the region does not accept is logged
// and dropped, so that it blocks nothing else.
func (a *Agent) tellRefusals(ctx context.Context) error {
	left := a.refusals.Take()
	for len(left) > 0 {
		page := left[:min(refusalsPage, len(left))]
		r := Report{Instances: []fleet.NodeInstance{}, Progress: []DeliveryProgress{}}
		for _, one := range page {
			r.Refusals = append(r.Refusals, Refusal{Refusal: one, AgeMS: max(0, a.refusals.now().Sub(one.At).Milliseconds())})
		}
		at, err := a.client.Report(ctx, r)
		switch kind := fleet.KindOf(err); {
		case err == nil:
			left = left[len(page):]
			err = a.adopt(ctx, at)
		case kind == fleet.Invalid || kind == fleet.TooLarge:
			a.opt.Log.Warn("report refusals to the region; they are only in this log", "count", len(page), "err", err)
			left, err = left[len(page):], nil
		}
		if err != nil {
			a.refusals.Back(left)
			return err
		}
	}
	return nil
}
