package plans

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// Calls answers plan and apply.
type Calls struct {
	*serve.Server
	Deps
}

// Deps is what plan and apply work with.
type Deps struct {
	Store  Store
	Region string // this one
	// Declared are the kinds in the order of an apply; Kinds has a row for each.
	Declared    []fleet.DeclaredKind
	Kinds       map[fleet.ObjectKind]Kind
	Definitions *definition.Registry
	// Flatten bounds the bytes of JSON that are worked on at once.
	Flatten        *compose.Budget
	Limits         compose.Limits
	OperationLimit time.Duration

	// What a write of one object does too.

	// Canonical stores the canonical form of one document.
	Canonical func(ctx context.Context, project fleet.ProjectName, doc compose.Layer) (fleet.Content, error)
	// Load reads a stored body; what names it in an error.
	Load func(ctx context.Context, what string, hash fleet.Hash) ([]byte, error)
	// Pin finds the template that a field names, for a spec that is pinned to before now.
	Pin func(ctx context.Context, want, before fleet.TemplatePin, field string) (fleet.TemplatePin, error)
	// FillContent stores the bodies of an instance's spec, and gives it and its revision their hashes.
	FillContent func(ctx context.Context, c *deliveries.InstanceChange, doc declare.Documents) error
	// KeepDeployment stores the bodies of a declared deployment.
	KeepDeployment func(ctx context.Context, project fleet.ProjectName, m declare.Made) error
	// ReadFleet splits the declaration of a fleet change; its patch stays as it was sent.
	ReadFleet func(raw []byte, put *api.FleetPut) (patch []byte, err error)
	// SecretEnv gives the places of the environment values that a spec marks as secret.
	SecretEnv func(spec json.RawMessage) []string
	// Written and Started answer a write; Started also wakes the entity that has work.
	Written func(w postgres.Written) *api.Accepted
	Started func(ctx context.Context, st postgres.Started) *api.Accepted
}

// New makes what answers plan and apply.
func New(s *serve.Server, d Deps) *Calls { return &Calls{Server: s, Deps: d} }
