package region

import (
	"context"
	"net"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Role is something that a server process does.
type Role string

// The roles of a server; a process has all of them unless it is told otherwise.
const (
	RoleAPI    Role = "api"
	RoleWorker Role = "worker"
	RoleLink   Role = "link"
)

// Roles are those of one process; none stands for all.
type Roles []Role

// Has says whether a process does something.
func (r Roles) Has(role Role) bool { return len(r) == 0 || slices.Contains(r, role) }

// ParseRoles reads words.
func ParseRoles(words []string) (Roles, error) {
	var out Roles
	for _, w := range words {
		role := Role(strings.TrimSpace(w))
		if !slices.Contains([]Role{RoleAPI, RoleWorker, RoleLink}, role) {
			return nil, fleet.Errorf(fleet.Invalid, "%.40q is no role of a server", w).At("roles").WithHint("there are api, worker and link")
		}
		out = append(out, role)
	}
	return out, nil
}

// door is an address that a process serves.
type door struct {
	flag, address string
	open          bool
	serve         func(ctx context.Context, l net.Listener) error
}

// startRoles binds all addresses before anything serves.
func (s *server) startRoles(ctx context.Context, group *errgroup.Group) error {
	doors := []door{
		{"--listen", s.cfg.Listen, s.cfg.Roles.Has(RoleAPI), s.serve},
		{"--link", s.cfg.Link, s.link != nil, s.link.Serve},
		{"--metrics", s.cfg.Metrics, s.cfg.Metrics != "", s.serveProbes},
	}
	listeners := make([]net.Listener, len(doors))
	for i, d := range doors {
		if !d.open {
			continue
		}
		var err error
		if listeners[i], err = listenAt(ctx, d.flag, d.address); err != nil {
			closeAll(listeners)
			return err
		}
	}
	for i, d := range doors {
		if d.open {
			group.Go(func() error { return d.serve(ctx, listeners[i]) })
		}
	}
	if s.link != nil {
		group.Go(func() error { return s.cutRevoked(ctx) })
	}
	if s.cfg.Roles.Has(RoleWorker) {
		group.Go(func() error { return s.work(ctx) })
	} else { // it serves meanwhile, and ends only if it is refused
		group.Go(func() error { return insist(ctx, s.log, "temporal", s.reach) })
	}
	return nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			_ = l.Close() // the process ends
		}
	}
}

func listenAt(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "listen on %s: %w", address, err).WithHint("is the port taken? choose another with " + flag)
	}
	return l, nil
}
