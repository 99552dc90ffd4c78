package node

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// Reasons why an enabled instance does not run, where no error explains it.
const (
	ReasonNotRunning = "not_running"
	// ReasonUnknownGuardian: something runs under a name that is not in the store.
	ReasonUnknownGuardian = "unknown_guardian"
)

// Held gives what the node holds of one name; it settles deliveries with an unknown outcome.
func (a *Applier) Held(ctx context.Context, name fleet.InstanceName) (fleet.Held, error) {
	in, err := a.opt.Store.Instance(ctx, name)
	if err != nil {
		return fleet.Held{}, err
	}
	seen, err := a.look(ctx, name)
	if err != nil {
		return fleet.Held{}, err
	}
	return heldOf(in, seen), nil
}

// heldOf gives what the node holds of some names, in their order.
func (a *Applier) heldOf(ctx context.Context, names []fleet.InstanceName) ([]fleet.NodeInstance, error) {
	if len(names) == 0 {
		return nil, nil
	}
	held, err := a.opt.Store.InstancesOf(ctx, names)
	if err != nil {
		return nil, err
	}
	seen, err := a.seen(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]fleet.NodeInstance, len(names))
	for i, name := range names {
		in := held[name]
		all[i] = fleet.NodeInstance{Instance: name, Held: heldOf(in, seen[name]), Reason: a.reason(in, seen[name], meta)}
	}
	return all, nil
}

func heldOf(in sqlite.Instance, seen *guardian.Status) fleet.Held {
	h := fleet.Held{Known: in.Known(), HighWater: in.HighWater.Version}
	if seen != nil {
		h.Running, h.Exits, h.LastExit = seen.Running, seen.Exits(), cutReason(seen.LastExit)
	}
	if in.Current != nil {
		h.Revision = in.Current.Revision
	}
	return h
}

// Instances gives the whole store, including tombstones, and then what runs without a row.
func (a *Applier) Instances(ctx context.Context) ([]fleet.NodeInstance, error) {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	held, err := a.opt.Store.Instances(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := a.seen(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]fleet.NodeInstance, 0, len(held))
	for _, in := range held {
		all = append(all, fleet.NodeInstance{
			Instance: in.Name, Held: heldOf(in, seen[in.Name]), Reason: a.reason(in, seen[in.Name], meta),
		})
		delete(seen, in.Name)
	}
	known := len(all)
	for name, st := range seen {
		all = append(all, fleet.NodeInstance{
			Instance: name, Held: fleet.Held{Running: st.Running}, Reason: ReasonUnknownGuardian,
		})
	}
	slices.SortFunc(all[known:], func(x, y fleet.NodeInstance) int {
		return strings.Compare(string(x.Instance), string(y.Instance))
	})
	return all, nil
}

// standing gives the input of a comparison: the store, and what runs without a row.
func (a *Applier) standing(ctx context.Context) (map[fleet.InstanceName]fleet.Held, error) {
	all, err := a.opt.Store.HeldAll(ctx)
	if err != nil {
		return nil, err
	}
	list, err := a.opt.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	held := make(map[fleet.InstanceName]fleet.Held, len(all))
	for _, in := range all {
		held[in.Instance] = in.Held
	}
	for _, st := range list {
		if h, known := held[st.Instance]; !known || st.Running {
			h.Running = st.Running
			held[st.Instance] = h
		}
	}
	return held, nil
}

func (a *Applier) reason(in sqlite.Instance, seen *guardian.Status, meta sqlite.Meta) string {
	if meta.Role != fleet.RoleActive || in.Current == nil || !needsProcess(*in.Current) || seen != nil && seen.Running {
		return ""
	}
	if !a.opt.MayRun() {
		return guardian.ReasonLeaseEnded
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.reasons[in.Name]; r != "" {
		return r
	}
	if seen != nil && seen.Reason != "" {
		return seen.Reason
	}
	if seen != nil && seen.LastExit != "" {
		return ReasonNotRunning + ": " + seen.LastExit
	}
	return ReasonNotRunning
}

// maxReason keeps a report small, whatever a program reports as its failure.
const maxReason = 300

func cutReason(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxReason)], "") }

func (a *Applier) blame(name fleet.InstanceName, err error) {
	text := string(fleet.KindOf(err)) + ": " + err.Error()
	a.mu.Lock()
	changed := a.reasons[name] != text
	a.reasons[name] = cutReason(text)
	a.mu.Unlock()
	if changed {
		a.opt.Changed(name)
	}
}

// blamed tells whether the last check of the name failed.
func (a *Applier) blamed(name fleet.InstanceName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reasons[name] != ""
}

func (a *Applier) allBlamed() []fleet.InstanceName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.reasons))
}

func (a *Applier) forgive(name fleet.InstanceName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reasons, name)
}
