package plans

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Calls answers plan and apply.
type Calls struct {
	*serve.Server
	Deps
}

// Deps is what plan and apply work with.
type Deps struct {
	Store Store
	// Declared are the kinds in the order of an apply; Kinds has a row for each.
	Declared []fleet.DeclaredKind
	Kinds    map[fleet.ObjectKind]Kind
	// Maker makes the change that a PUT of one object makes too.
	Maker          *declaration.Maker
	OperationLimit time.Duration
	// Answer says what a write came to, and wakes the entity that has work.
	Answer func(ctx context.Context, st postgres.Started) *api.Accepted
}

// New makes what answers plan and apply.
func New(s *serve.Server, d Deps) *Calls { return &Calls{Server: s, Deps: d} }
