package plans

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// plannedFleet is the declared fleet change of a request.
type plannedFleet struct {
	put   api.FleetPut
	spec  fleet.FleetSpec
	patch []byte
}

func (p *planned) readFleet(spec []byte) (err error) {
	f := &p.fleet
	if f.patch, err = p.calls.ReadFleet(spec, &f.put); err != nil {
		return err
	}
	if err := besideSpec(f.put.Project, f.put.Service, f.put.Labels); err != nil {
		return err
	}
	f.spec, err = declare.Fleet(f.put, f.patch)
	return err
}

// templates are those that an object refers to.
func (p *planned) templates() []string {
	return append([]string{p.put.Template, p.fleet.put.Change.Template}, p.compositions...)
}

// decideFleet pins the template as the write will. What is declared as it was is not run
// again: that is asked for by name.
func (p *planner) decideFleet(ctx context.Context, o *planned) error {
	change := &o.fleet.spec.Change
	if change.Template != "" {
		pin, err := p.pin(ctx, fleet.TemplatePin{Name: change.Template, Generation: change.TemplateGeneration}, o.pinned(), "/spec/change/template")
		if err != nil {
			return err
		}
		change.Template, change.TemplateGeneration = pin.Name, pin.Generation
		if _, _, err := p.templateSpec(ctx, pin); err != nil {
			return decode.Below("/spec/change", err)
		}
	}
	return o.settle(o.fleet.spec)
}

func (a *applying) putFleetOf(ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error) {
	p := fleets.FleetPut{Write: w, Spec: o.fleet.spec, Start: o.releases, Reason: o.fleet.put.Reason}
	if p.Reason == "" {
		p.Reason = a.r.head.Reason
	}
	if o.fleet.patch != nil {
		patch, err := a.Canonical(ctx, p.Project, compose.Layer{Name: "/change/patch", JSON: o.fleet.patch})
		if err != nil {
			return nil, decode.Below("/spec", err)
		}
		p.Spec.Change.Patch = &patch
	}
	started, err := a.Store.PutFleet(ctx, p)
	if err != nil {
		return nil, err
	}
	return a.Started(ctx, started), nil
}
