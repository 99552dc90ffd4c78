package plans

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// refers are the templates that an object names.
func (p *planned) refers() []string {
	return append([]string{p.instance.Put.Template, p.fleet.Put.Change.Template}, p.template.Put.Compositions...)
}

// decideFleet pins the template as the write will. What is declared as it was is not run
// again: that is asked for by name.
func (p *planner) decideFleet(ctx context.Context, o *planned) error {
	if err := p.maker.Pin(ctx, p.of(o), &o.fleet); err != nil {
		return decode.Below("/spec", err)
	}
	return o.settle(o.fleet.Spec)
}

func (a *applying) putFleetOf(ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error) {
	if err := a.Maker.KeepPatch(ctx, w.Project, &o.fleet); err != nil {
		return nil, decode.Below("/spec", err)
	}
	p := fleets.FleetPut{Write: w, Spec: o.fleet.Spec, Start: o.releases, Reason: cmp.Or(o.fleet.Put.Reason, a.r.head.Reason)}
	return a.started(ctx)(a.Store.PutFleet(ctx, p))
}
