package region

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// healRuntime runs the instances of one node in memory. It outlives agents, as guardians do.
type healRuntime struct {
	mu      sync.Mutex
	running map[fleet.InstanceName]guardian.Status
	twice   []fleet.InstanceName // started while they ran
}

// healFails is a command that does not stay up.
const healFails = "fails"

// healHands are the hands of one life of the agent on its runtime: a dead agent has none.
type healHands struct {
	*healRuntime
	life *healLife
}

func (h healHands) lock() error {
	if h.life.dead.Load() {
		return fleet.Errorf(fleet.Unavailable, "this agent is dead")
	}
	h.mu.Lock()
	return nil
}

func (h healHands) List(context.Context) ([]guardian.Status, error) {
	if err := h.lock(); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.running)), nil
}

func (h healHands) Status(_ context.Context, name fleet.InstanceName) (guardian.Status, bool, error) {
	if err := h.lock(); err != nil {
		return guardian.Status{}, false, err
	}
	defer h.mu.Unlock()
	st, ok := h.running[name]
	return st, ok, nil
}

func (h healHands) Start(_ context.Context, spec guardian.Spec) (guardian.Status, error) {
	if err := h.lock(); err != nil {
		return guardian.Status{}, err
	}
	defer h.mu.Unlock()
	if _, taken := h.running[spec.Instance]; taken {
		h.twice = append(h.twice, spec.Instance)
		return guardian.Status{}, fleet.Errorf(fleet.Conflict, "instance %s has a guardian already", spec.Instance)
	}
	if spec.Run.Command[0] == healFails {
		return guardian.Status{}, fleet.Errorf(fleet.ApplyFailed, "it does not stay up")
	}
	st := guardian.Status{Instance: spec.Instance, Labels: spec.Labels, Running: true, Guardian: guardian.Live}
	h.running[spec.Instance] = st
	return st, nil
}

// Started: no start here outlasts its caller.
func (h healHands) Started(ctx context.Context, name fleet.InstanceName) (guardian.Status, error) {
	st, ok, err := h.Status(ctx, name)
	if err == nil && !ok {
		err = fleet.Errorf(fleet.Conflict, "instance %s has no guardian", name)
	}
	return st, err
}

func (h healHands) Stop(_ context.Context, name fleet.InstanceName) error {
	if err := h.lock(); err != nil {
		return err
	}
	defer h.mu.Unlock()
	delete(h.running, name)
	return nil
}

func (h healHands) Remove(_ context.Context, name fleet.InstanceName) error {
	if err := h.lock(); err != nil {
		return err
	}
	defer h.mu.Unlock()
	if _, taken := h.running[name]; taken {
		return fleet.Errorf(fleet.Conflict, "instance %s has a guardian", name)
	}
	return nil
}

func (h healHands) Signal(_ context.Context, name fleet.InstanceName, _ string, labels guardian.Labels) error {
	if err := h.lock(); err != nil {
		return err
	}
	defer h.mu.Unlock()
	st, ok := h.running[name]
	if !ok {
		return fleet.Errorf(fleet.NotFound, "instance %s does not run", name)
	}
	st.Labels = labels
	h.running[name] = st
	return nil
}

// snapshot is what runs now.
func (h *healRuntime) snapshot() map[fleet.InstanceName]guardian.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.running)
}
