package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// drainStore keeps the drains of nodes. Each step may be taken twice.
type drainStore interface {
	SeeDrain(ctx context.Context, in fleet.DrainLook) (fleet.DrainSeen, error)
	// AskConnections asks those that still live to drain by the drain's deadline.
	AskConnections(ctx context.Context, node fleet.NodeName, ids []fleet.ConnectionID) error
	// EvictReplicas ends all replicas of a node, whether they run elsewhere or not.
	EvictReplicas(ctx context.Context, node fleet.NodeName) error
	// CutConnections ends those whose deadline passed.
	CutConnections(ctx context.Context, node fleet.NodeName, ids []fleet.ConnectionID) error
	EndDrain(ctx context.Context, e fleet.DrainEnd) error
}

// Drains are the steps of DrainNode.
type Drains struct {
	Store  drainStore
	Doors  doorTeller
	Signer Signer
	Build  string
}

// DrainConnections are connections of a node.
type DrainConnections struct {
	Node fleet.NodeName       `json:"node"`
	IDs  []fleet.ConnectionID `json:"ids"`
}

// SeeDrain takes over what asks for the drain of a node, and reads how far it is.
func (d *Drains) SeeDrain(ctx context.Context, in fleet.DrainLook) (fleet.DrainSeen, error) {
	if err := fleet.ValidateName("/node", string(in.Node)); err != nil {
		return fleet.DrainSeen{}, fail(ctx, err)
	}
	in.Build = d.Build
	seen, err := d.Store.SeeDrain(ctx, in)
	if err == nil && seen.Operation != "" && seen.Force && seen.Holds {
		seen.Signed, err = d.Signer.Sign(ctx, in.Node, fleet.HandOverCommand{Site: seen.Site})
	}
	return seen, fail(ctx, err)
}

// AskDrain asks connections to drain, wherever their streams are.
func (d *Drains) AskDrain(ctx context.Context, in DrainConnections) error {
	return fail(ctx, d.Store.AskConnections(ctx, in.Node, in.IDs))
}

// EvictReplicas ends the replicas that did not move.
func (d *Drains) EvictReplicas(ctx context.Context, node fleet.NodeName) error {
	return fail(ctx, d.Store.EvictReplicas(ctx, node))
}

// CutDrain ends connections whose deadline passed.
func (d *Drains) CutDrain(ctx context.Context, in DrainConnections) error {
	return fail(ctx, d.Store.CutConnections(ctx, in.Node, in.IDs))
}

// EndDrain closes a drain and the operations that it served, and tells their doors.
func (d *Drains) EndDrain(ctx context.Context, in fleet.DrainEnd) error {
	if err := d.Store.EndDrain(ctx, in); err != nil {
		return fail(ctx, err)
	}
	return fail(ctx, d.Doors.TellDoors(ctx, fleet.DrainSubject(in.Node)))
}
