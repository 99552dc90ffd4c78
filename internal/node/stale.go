package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// staleBy is the reason for which an action was refused as stale, as the region lists it.
type staleBy string

func (s staleBy) Error() string { return string(s) }

// stale refuses an action of an earlier right, or of an earlier revision.
func stale(reason staleBy, format string, args ...any) error {
	return &fleet.Error{Kind: fleet.Stale, Message: fmt.Sprintf(format, args...), Err: reason}
}

// refused has the region told of an action that was refused as stale (X21). What ended because
// the region itself has something newer by now has no reason, and is only counted.
func (a *Applier) refused(action string, err error) {
	var reason staleBy
	if errors.As(err, &reason) {
		a.opt.Refused(audit.Refusal{Door: audit.DoorNode, Identity: "region", Reason: string(reason), What: action + ": " + err.Error()})
	}
}

// refusals are what the region is still to be told of.
type refusals struct {
	*audit.Window
	now  func() time.Time
	wake chan struct{}
}

func (r refusals) add(one audit.Refusal) {
	r.Add(one)
	poke(r.wake)
}

// take gives those that are ready, for a report.
func (r refusals) take() ([]audit.Refusal, []Refusal) {
	taken := r.Take(false)
	told := make([]Refusal, len(taken))
	for i, one := range taken {
		told[i] = Refusal{Refusal: one, AgeMS: max(0, r.now().Sub(one.At).Milliseconds())}
	}
	return taken, told
}
