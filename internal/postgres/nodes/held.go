package nodes

import (
	"context"
	"math"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// HeldRows are what one node holds of some instances.
type HeldRows db.UpsertHeldParams

// Add adds what it holds of one.
func (r *HeldRows) Add(i fleet.NodeInstance) {
	h := i.Held
	r.Names, r.Eras, r.Revisions = append(r.Names, string(i.Instance)), append(r.Eras, h.Era), append(r.Revisions, h.Version.Revision)
	r.Hashes, r.Enabled = append(r.Hashes, postgres.HashBytes(h.Content.Hash)), append(r.Enabled, h.Enabled)
	r.Deleted, r.Running = append(r.Deleted, h.Action == fleet.ActionDelete), append(r.Running, h.Running)
	r.HighEras, r.HighRevisions = append(r.HighEras, h.HighWater.Era), append(r.HighRevisions, h.HighWater.Revision)
	r.Reasons = append(r.Reasons, i.Reason)
	r.Exits, r.LastExits = append(r.Exits, ExitsOf(h)), append(r.LastExits, h.LastExit)
}

// ExitsOf is how often a command has exited, as the store counts it.
func ExitsOf(h fleet.Held) int32 { return int32(min(max(h.Exits, 0), math.MaxInt32)) }

// Write writes it where nothing newer is known.
func (r HeldRows) Write(ctx context.Context, q *db.Queries) error {
	return q.UpsertHeld(ctx, db.UpsertHeldParams(r))
}
