package copies

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// refusal is a change that was set aside, and the rule by which.
type refusal struct {
	fleet.CopyChange
	rule string
}

// mostSetAside bounds what is listed of one peer. A comparison comes back to the rest.
const mostSetAside = 10_000

// refuse sets changes aside, for an operator to see.
func (a *applying) refuse(ctx context.Context) error {
	all := a.all.refused
	if len(all) == 0 {
		return nil
	}
	p := db.PutQuarantineParams{Peer: string(a.peer), Most: mostSetAside}
	for _, r := range all {
		p.Regions, p.Kinds = append(p.Regions, plain(string(r.Key.Region))), append(p.Kinds, plain(string(r.Key.Kind)))
		p.Scopes, p.Names = append(p.Scopes, plain(r.Key.Scope)), append(p.Names, plain(r.Key.Name))
		p.Reasons, p.OwnerEpochs, p.Numbers = append(p.Reasons, r.rule), append(p.OwnerEpochs, r.Version.OwnerEpoch), append(p.Numbers, r.Version.Number)
		p.Waiting = append(p.Waiting, r.waiting())
	}
	return a.q.PutQuarantine(ctx, p)
}

// release forgets what was set aside of objects of which a newer state was taken.
func (a *applying) release(ctx context.Context, taken []fleet.CopyChange) error {
	keys := keysIn(a.aside, taken)
	if len(keys) == 0 {
		return nil
	}
	c := columnsOf(keys)
	return a.q.DropQuarantine(ctx, db.DropQuarantineParams{
		Peer: string(a.peer), Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names,
	})
}

// plain is a name as it can be stored, whatever a peer sent.
func plain(name string) string {
	if name == "" || fleet.ValidateName("name", name) == nil {
		return name
	}
	return fmt.Sprintf("%+.40q", name)
}
