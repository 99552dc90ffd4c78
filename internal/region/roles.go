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

// startRoles binds all addresses before anything serves.
func (s *server) startRoles(ctx context.Context, group *errgroup.Group) error {
	var web, linked net.Listener
	var err error
	if s.cfg.Roles.Has(RoleAPI) {
		if web, err = listenAt(ctx, "--listen", s.cfg.Listen); err != nil {
			return err
		}
	}
	if s.link != nil {
		if linked, err = listenAt(ctx, "--link", s.cfg.Link); err != nil {
			if web != nil {
				_ = web.Close() // the process ends
			}
			return err
		}
		group.Go(func() error { return s.link.Serve(ctx, linked) })
		group.Go(func() error { return s.cutRevoked(ctx) })
	}
	if web != nil {
		group.Go(func() error { return s.serve(ctx, web) })
	}
	if s.cfg.Roles.Has(RoleWorker) {
		group.Go(func() error { return s.work(ctx) })
	}
	return nil
}

func listenAt(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "listen on %s: %w", address, err).WithHint("is the port taken? choose another with " + flag)
	}
	return l, nil
}
