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

// The roles of a server; by default a process has all of them.
const (
	RoleAPI    Role = "api"
	RoleWorker Role = "worker"
	RoleLink   Role = "link"
)

// Roles are the roles of one process; none means all.
type Roles []Role

// Has reports whether a process has a role.
func (r Roles) Has(role Role) bool { return len(r) == 0 || slices.Contains(r, role) }

// ParseRoles parses the roles.
func ParseRoles(words []string) (Roles, error) {
	var out Roles
	for _, w := range words {
		role := Role(strings.TrimSpace(w))
		if !slices.Contains([]Role{RoleAPI, RoleWorker, RoleLink}, role) {
			return nil, fleet.Errorf(fleet.Invalid, "unknown role %.40q", w).At("roles").WithHint("use api, worker or link")
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
		{"--peers", s.cfg.Peers.Listen, s.cfg.Peers.Listen != "", s.servePeers},
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
	} else { // serve in the background, and end only on a refusal
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
