package region

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
)

// openLink makes this server's end of the link, with all its services.
func (s *server) openLink() (err error) {
	if s.cfg.Link == "" || !s.cfg.Roles.Has(RoleLink) {
		if len(s.cfg.Roles) > 0 && s.cfg.Roles.Has(RoleLink) {
			return fleet.Errorf(fleet.Invalid, "the role link needs an address").At("link").WithHint("give --link HOST:PORT")
		}
		return nil
	}
	s.link, err = link.New(link.Options{
		Store: s.store, ID: s.id, Timing: s.cfg.Timing.Link, Now: time.Now, Log: s.log, Metrics: s.registry,
	})
	return err
}
