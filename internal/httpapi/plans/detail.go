package plans

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

const (
	// maxChanges and maxDifference limit what is shown of one object.
	maxChanges    = 100
	maxDifference = 64 << 10
	// maxShownValue is the longest value that is shown.
	maxShownValue = 4 << 10
	// maxCompared is the longest config that is compared by its members.
	maxCompared = 16 << 20
	// planRoom bounds the differences of one plan.
	planRoom = 32 << 20
	// detailed is how many changed instances are looked at together; it bounds the bodies
	// that lie in memory, with heldAtOnce their bytes.
	detailed   = 200
	heldAtOnce = 8 << 20
	// oneChunk is what a body may have to be read together with others.
	oneChunk = postgres.ChunkSize
)

// detail fills in what is shown of changes: the difference of the declared part, and for
// instances that of the final config to what each node holds.
func (p *planner) detail(ctx context.Context) error {
	var changed, deployed []*planned
	for _, o := range p.ordered {
		if o.ok() && o.key.Kind == fleet.KindDeployment && o.now != nil {
			deployed = append(deployed, o)
		}
		if !o.ok() || o.action == api.PlanUnchanged {
			continue
		}
		if o.action == api.PlanChange {
			o.difference = p.declaredDifference(o)
		}
		if o.key.Kind == fleet.KindInstance {
			changed = append(changed, o)
		}
	}
	for some := range slices.Chunk(changed, detailed) {
		if err := p.detailInstances(ctx, some); err != nil {
			return err
		}
	}
	return p.detailDeployments(ctx, deployed)
}

// declaredDifference compares labels and spec. The config is compared with what nodes hold, so
// its name by hash is left out here.
func (p *planner) declaredDifference(o *planned) *api.Difference {
	from, secretFrom, errFrom := p.declaredPart(o.now.Labels, o.now.Spec)
	to, secretTo, errTo := p.declaredPart(o.labels, o.declared)
	if errFrom != nil || errTo != nil {
		return &api.Difference{Changes: []api.Change{}, Omitted: "it cannot be read"}
	}
	d := p.compare(from, to, append(secretFrom, secretTo...), maxChanges, maxDifference)
	if len(d.Changes) == 0 && d.More == 0 {
		return nil
	}
	return &d
}

func (p *planner) declaredPart(labels map[string]string, spec json.RawMessage) (text []byte, secret []string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(spec, &members); err != nil {
		return nil, nil, err
	}
	delete(members, "config")
	if labels == nil {
		labels = map[string]string{} // no labels are no labels
	}
	text, err = json.Marshal(map[string]any{"labels": labels, "spec": members})
	if err != nil {
		return nil, nil, err
	}
	for _, at := range declaration.SecretEnvAt(spec) {
		secret = append(secret, "/spec"+at)
	}
	text, err = compose.Canonical(text, compose.Limits{})
	return text, secret, err
}

// compare tells a difference within what is left of the plan's room.
func (p *planner) compare(from, to []byte, secret []string, changes, size int) api.Difference {
	c := compose.Comparison{
		MaxChanges: max(changes, 1), MaxBytes: max(min(size, p.room), 1), MaxValue: maxShownValue,
		Hidden: compose.MarksOf(secret), Literal: []byte(`"` + api.Redacted + `"`),
	}
	if changes <= 0 {
		c.MaxBytes = 1
	}
	found := c.Compare(from, to)
	d := api.Difference{Changes: make([]api.Change, len(found.Changes)), More: found.More}
	for i, f := range found.Changes {
		d.Changes[i] = api.Change{Op: string(f.Op), Path: f.Path, From: f.From, To: f.To, FromBytes: f.FromBytes, ToBytes: f.ToBytes}
	}
	p.room -= weight(d)
	return d
}

// weight is about what a difference takes in an answer.
func weight(d api.Difference) int {
	const each = 80
	w := 0
	for _, c := range d.Changes {
		w += len(c.Path) + len(c.From) + len(c.To) + each
	}
	return w
}

// detailInstances reads what nodes hold of some instances together, then compares.
func (p *planner) detailInstances(ctx context.Context, some []*planned) error {
	keys := make([]fleet.ObjectKey, len(some))
	for i, o := range some {
		keys[i] = o.key
	}
	held, err := p.s.Store.HeldRevisions(ctx, keys)
	if err != nil {
		return err
	}
	for len(some) > 0 {
		n, hashes := together(some, held)
		bodies, err := p.s.Store.WholeBodies(ctx, hashes)
		if err != nil {
			return err
		}
		for _, o := range some[:n] {
			if err := p.detailInstance(ctx, o, held[o.key], bodies); err != nil {
				return err
			}
		}
		some = some[n:]
	}
	return nil
}

// together takes as many instances as may have their bodies in memory at once, at least one.
func together(some []*planned, held map[fleet.ObjectKey][]plans.HeldRevision) (int, []fleet.Hash) {
	var hashes []fleet.Hash
	var size int64
	seen := map[fleet.Hash]bool{}
	for i, o := range some {
		for _, h := range held[o.key] {
			c := h.Content
			if !h.Known || c.Kind != fleet.ContentJSON || c.Size > oneChunk || seen[c.Hash] || c.Hash == o.content.Hash {
				continue
			}
			seen[c.Hash], size, hashes = true, size+c.Size, append(hashes, c.Hash)
		}
		if size > heldAtOnce {
			return i + 1, hashes
		}
	}
	return len(some), hashes
}

// detailInstance merges the final config, and compares it with each content that nodes hold.
func (p *planner) detailInstance(ctx context.Context, o *planned, held []plans.HeldRevision, bodies map[fleet.Hash][]byte) error {
	if o.instance.Spec.Artifact != nil {
		return p.refuseOrFail(o, p.compareNodes(ctx, o, nil, held, bodies))
	}
	layers, err := p.maker.LayersOf(ctx, o.instance)
	if err != nil {
		return p.refuseOrFail(o, err)
	}
	err = p.s.Maker.Budget.Do(ctx, declaration.WeightOf(layers), func() error {
		text, err := p.maker.Flatten(ctx, layers)
		if err != nil {
			return err
		}
		o.content = compose.ContentOf(text)
		return p.compareNodes(ctx, o, text, held, bodies)
	})
	return p.refuseOrFail(o, err)
}

// refuseOrFail keeps with the object what is wrong with it; what is wrong with the region
// ends the plan.
func (p *planner) refuseOrFail(o *planned, err error) error {
	if fleet.OfRegion(err) {
		return err
	}
	if err != nil {
		o.refuse(decode.Below("/spec", err))
	}
	return nil
}

func (p *planner) compareNodes(ctx context.Context, o *planned, text []byte, held []plans.HeldRevision, bodies map[fleet.Hash][]byte) error {
	secret, err := p.secretsFor(ctx, o, held)
	if err != nil {
		return err
	}
	entries := map[fleet.Hash]int{}
	changes, size := maxChanges, maxDifference
	for _, h := range held {
		i, known := entries[h.Content.Hash]
		if !known {
			e := api.PlanNodes{Hash: h.Content.Hash, Size: h.Content.Size}
			if e.Difference, err = p.nodeDifference(ctx, o, text, h, difference{secret, changes, size}, bodies); err != nil {
				return err
			}
			changes, size = changes-len(e.Changes), size-weight(e.Difference)
			i = len(o.nodes)
			entries[h.Content.Hash] = i
			o.nodes = append(o.nodes, e)
		}
		o.nodes[i].Nodes = append(o.nodes[i].Nodes, api.PlanNode{
			Node: string(h.Node), Role: h.Role, Revision: h.Revision, Enabled: h.Enabled, Running: h.Running,
		})
	}
	return nil
}

// difference is what may be shown of one content.
type difference struct {
	secret        []string
	changes, size int
}

func (p *planner) nodeDifference(ctx context.Context, o *planned, text []byte, h plans.HeldRevision, may difference, bodies map[fleet.Hash][]byte) (api.Difference, error) {
	none := func(why string) (api.Difference, error) {
		return api.Difference{Changes: []api.Change{}, Omitted: why}, nil
	}
	switch {
	case h.Content.Hash == "" || h.Content.Hash == o.content.Hash:
		return none("")
	case !h.Known:
		return none("the region does not have this revision")
	case h.Content.Kind != fleet.ContentJSON || text == nil:
		return none("artifacts are compared by hash and size")
	case h.Content.Size > maxCompared || o.content.Size > maxCompared:
		return none("a config of this size is compared by hash and size")
	case p.room <= 0:
		return none("this plan tells of too many differences: plan fewer objects")
	}
	from, read := bodies[h.Content.Hash]
	if !read {
		var err error
		if from, err = p.s.Maker.Load(ctx, "what a node holds", h.Content.Hash); err != nil {
			return api.Difference{}, err
		}
	}
	return p.compare(from, text, may.secret, may.changes, may.size), nil
}
