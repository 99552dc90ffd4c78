package executors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// members caches which providers can be called, for a short time.
type members struct {
	directory directory
	life      time.Duration
	now       func() time.Time
	loads     singleflight.Group

	mu        sync.Mutex
	known     map[fleet.ModuleRef]*offer
	changes   int // counts notifications: a lookup that began before one may be outdated
	listening bool
}

// offer is the providers that can be called for one module, and whose turn it is.
type offer struct {
	members []fleet.ModuleMember
	until   time.Time
	used    time.Time
	turn    int
}

// maxOffers limits the cache, which does not keep modules without a provider.
const maxOffers = 10_000

func newMembers(o Options) *members {
	return &members{directory: o.Directory, life: o.Life, now: o.Now, known: map[fleet.ModuleRef]*offer{}}
}

// callable returns the members that can be called now, starting with the one whose turn it is (C79).
func (m *members) callable(ctx context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error) {
	if list := m.next(of); list != nil {
		return list, nil
	}
	// Calls that wait for the same lookup share it, each with its own deadline.
	load := m.loads.DoChan(of.String(), func() (any, error) {
		return nil, m.load(context.WithoutCancel(ctx), of)
	})
	select {
	case <-ctx.Done():
		return nil, fleet.Errorf(fleet.Unavailable, "timed out looking up the providers of %s", of)
	case loaded := <-load:
		if loaded.Err != nil {
			return nil, loaded.Err
		}
	}
	if list := m.next(of); list != nil {
		return list, nil
	}
	return m.look(ctx, of)
}

// look reads the directory without caching the answer.
func (m *members) look(ctx context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error) {
	all, err := m.directory.ModuleMembers(ctx, of)
	if err != nil {
		return nil, err
	}
	if list := onlyCallable(all); len(list) > 0 {
		return list, nil
	}
	return nil, m.noProvider(ctx, of)
}

func onlyCallable(all []fleet.ModuleMember) []fleet.ModuleMember {
	var list []fleet.ModuleMember
	for _, member := range all {
		if member.Callable() {
			list = append(list, member)
		}
	}
	return list
}

const lookupLimit = 5 * time.Second

func (m *members) load(ctx context.Context, of fleet.ModuleRef) error {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	m.mu.Lock()
	before := m.changes
	m.mu.Unlock()
	all, err := m.directory.ModuleMembers(ctx, of)
	if err != nil {
		return err
	}
	list := onlyCallable(all)
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.known[of]
	delete(m.known, of)
	if len(list) == 0 || m.changes != before {
		return nil
	}
	if len(m.known) >= maxOffers {
		clear(m.known)
	}
	fresh := &offer{members: list, until: m.now().Add(m.life), used: m.now()}
	if old != nil {
		fresh.turn = old.turn
	}
	m.known[of] = fresh
	return nil
}

// next returns the cached members, each time starting with another; nil for none. A lookup that was just made
// serves its callers, with or without notifications.
func (m *members) next(of fleet.ModuleRef) []fleet.ModuleMember {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.known[of]
	if o == nil || !m.now().Before(o.until) {
		return nil
	}
	o.used = m.now()
	if !m.listening {
		o.until = time.Time{}
	}
	n := len(o.members)
	at := o.turn % n
	o.turn = (at + 1) % n
	list := make([]fleet.ModuleMember, 0, n)
	return append(append(list, o.members[at:]...), o.members[:at]...)
}

func (m *members) forget(id fleet.ConnectionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	for _, o := range m.known {
		for _, member := range o.members {
			if member.Connection == id {
				o.until = time.Time{} // its turn stays
				break
			}
		}
	}
}

func (m *members) listen(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listening = on
	m.changes++
}

// named are the connections of recently used lookups; older lookups are dropped.
func (m *members) named() map[fleet.ConnectionID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.now().Add(-keepIdle)
	named := map[fleet.ConnectionID]bool{}
	for of, o := range m.known {
		if o.used.Before(old) {
			delete(m.known, of)
			continue
		}
		for _, member := range o.members {
			named[member.Connection] = true
		}
	}
	return named
}

// keepIdle is how long an unused connection stays open.
const keepIdle = time.Minute

// noProvider is the error for a module without a provider: who offered it last, and what helps (X8).
func (m *members) noProvider(ctx context.Context, of fleet.ModuleRef) error {
	last, err := m.directory.LastOffer(ctx, of)
	switch {
	case err != nil:
		return err
	case last == nil:
		return fleet.Errorf(fleet.NotFound, "no provider offers module %s", of).WithHint("GET /api/v1/modules lists the available modules")
	}
	why := fmt.Sprintf("it has not opened its stream (%s)", last.State)
	unblocks := "it can be called once the provider is Active"
	switch {
	case last.Ended != nil:
		why = fmt.Sprintf("it disconnected at %s (%s)", last.Ended.UTC().Format(time.RFC3339), last.Reason)
		unblocks = "start a provider that offers it"
	case last.Drains:
		why, unblocks = "it is draining", "start another provider that offers it"
	case last.Cordoned:
		why, unblocks = "its node is cordoned", "uncordon the node, or start another provider that offers it"
	case last.State == fleet.ConnectionActive:
		why = "it has only just connected"
		unblocks = "retry"
	}
	return fleet.Errorf(fleet.Unavailable, "module %s has no executor: provider %s offered it last, and %s", of, last.Provider, why).
		WithHint(unblocks)
}
