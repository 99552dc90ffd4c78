package region

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
)

// bootstrap creates the token of the first administrator.
func (s *server) bootstrap(ctx context.Context) error {
	if s.cfg.BootstrapToken == "" {
		return nil
	}
	hash := identity.HashToken(s.cfg.BootstrapToken)
	_, err := s.store.AddAPIToken(ctx, keyring.APIToken{Hash: hash[:], Role: "admin", Note: "bootstrap", CreatedBy: "bootstrap"})
	return err
}

// nameURLs sets the URLs of the API that were not given. Other regions learn only a URL that was given.
func (s *server) nameURLs() {
	s.cfg.Describe.APIURL = cmp.Or(s.cfg.Describe.APIURL, s.cfg.PublicURL)
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	s.cfg.PublicURL = cmp.Or(s.cfg.PublicURL, scheme+s.cfg.Listen)
}

// declareRegion writes what this region is, unless it is written so already.
func (s *server) declareRegion(ctx context.Context) error {
	spec := s.cfg.Describe
	spec.Version = fleet.RegionVersion{API: "v1", Data: postgres.SchemaVersion()}
	if err := spec.Validate(); err != nil {
		return err
	}
	_, err := s.store.Declare(ctx, postgres.Write{
		Key: fleet.RegionKey(fleet.RegionName(s.cfg.Region)), Request: postgres.Request{Project: fleet.DefaultProject, Actor: "region:" + s.cfg.Region},
	}, spec)
	return err
}
