package plans

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// places are the objects that the placement of a deployment refers to.
func (p *planned) places() []fleet.ObjectKey {
	var out []fleet.ObjectKey
	_ = p.deployment.Spec.Placement.Each(func(key fleet.ObjectKey, _ string) error {
		out = append(out, key)
		return nil
	})
	return out
}

// lookUpDeployments adds what was released last of those that stand.
func (p *planner) lookUpDeployments(ctx context.Context, keys map[fleet.ObjectKey]bool) error {
	var names []string
	for key := range keys {
		if _, stands := p.known[key]; stands && key.Kind == fleet.KindDeployment {
			names = append(names, key.Name)
		}
	}
	for some := range slices.Chunk(names, viewedAtOnce) {
		views, err := p.s.Store.ViewDeployments(ctx, some...)
		if err != nil {
			return err
		}
		for name, v := range views {
			now := p.known[fleet.DeploymentKey(fleet.DeploymentName(name))]
			if v.UID == now.UID {
				now.Released.Revision, now.ReleasedGeneration = v.Revision, v.Released
				p.known[fleet.DeploymentKey(fleet.DeploymentName(name))] = now
			}
		}
	}
	return nil
}

// viewedAtOnce bounds the names of one query.
const viewedAtOnce = 1000

// decideDeployment looks whether there are the sites and pools, in the request or as they stand.
func (p *planner) decideDeployment(ctx context.Context, o *planned) error {
	if err := p.maker.CheckPlaces(ctx, p.of(o), o.deployment.Spec.Placement); err != nil {
		return decode.Below("/spec", err)
	}
	o.content = o.deployment.Content()
	return o.settle(o.deployment.Spec)
}

func (a *applying) putDeploymentOf(ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error) {
	if err := a.Maker.KeepDeployment(ctx, o.project, o.deployment.Made); err != nil {
		return nil, err
	}
	p := o.deployment.Change(w)
	p.Deploy, p.Reason = a.r.deploy, cmp.Or(p.Reason, a.r.head.Reason)
	return a.started(ctx)(a.Store.PutDeployment(ctx, p))
}

// detailDeployments says of deployments that stand how each field that differs from what runs gets there (F51).
func (p *planner) detailDeployments(ctx context.Context, all []*planned) error {
	for some := range slices.Chunk(all, detailed) {
		names := make([]string, len(some))
		for i, o := range some {
			names[i] = o.key.Name
		}
		run, err := p.s.Store.RunningSpecs(ctx, names...)
		if err != nil {
			return err
		}
		some = slices.DeleteFunc(some, func(o *planned) bool { return run[o.key.Name].UID != o.now.UID })
		for few := range slices.Chunk(some, heldAtOnce/(2*definition.MaxBytes)) {
			if err := p.comparePaths(ctx, few, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparePaths has the definitions of all of them in memory at once.
func (p *planner) comparePaths(ctx context.Context, few []*planned, run map[string]fleet.RunningSpec) error {
	var hashes []fleet.Hash
	for _, o := range few {
		r := run[o.key.Name]
		if r.Definition != o.content.Hash {
			hashes = append(hashes, r.Definition)
		}
		if r.Applied.Definition != r.Definition && r.Applied.Definition != o.content.Hash {
			hashes = append(hashes, r.Applied.Definition)
		}
	}
	var bodies map[fleet.Hash][]byte
	var err error
	if len(hashes) > 0 {
		bodies, err = p.s.Store.WholeBodies(ctx, hashes)
	}
	for i := 0; i < len(few) && err == nil; i++ {
		r := run[few[i].key.Name]
		r.Body, r.Applied.Body = bodies[r.Definition], bodies[r.Applied.Definition]
		if few[i].changes, err = few[i].deployment.Changes(&r, few[i].deploy); err == nil {
			err = p.detailRollout(ctx, few[i], r)
		}
	}
	return err
}
