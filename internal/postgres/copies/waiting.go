package copies

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// complete reports whether all is here that a change is composed of, and keeps the generation of a template. One that is not
// complete waits; it holds up neither the others nor the stream.
func (a *applying) complete(ctx context.Context, c fleet.CopyChange) (bool, error) {
	if c.Key.Kind != fleet.KindTemplate {
		return true, nil
	}
	name := a.nameOf(c.Key)
	spec, err := fleet.ReadCopiedTemplate(name, c.Object.Spec)
	if err != nil {
		a.group.refused = append(a.group.refused, refusal{c, "malformed"})
		return false, nil
	}
	missing, err := missingParts(ctx, a.q, name, spec)
	switch {
	case err != nil:
		return false, err
	case missing.None():
		return true, a.keepGeneration(ctx, c)
	}
	a.done.Waiting++
	return false, a.wait(ctx, c)
}

// nameOf is the name that specs of this region have for a copied template.
func (a *applying) nameOf(k fleet.CopyKey) fleet.TemplateName {
	return fleet.CopiedTemplate(k.Region, k.Name).In(a.self)
}

// missingParts looks for what a template is composed of. What is here stays until the transaction ends. A generation is
// stored only after all that it is composed of.
func missingParts(ctx context.Context, q *db.Queries, name fleet.TemplateName, spec fleet.TemplateSpec) (fleet.TemplateParts, error) {
	missing := fleet.TemplateParts{}
	_, err := q.BodyHere(ctx, db.BodyHereParams{Hash: postgres.HashBytes(spec.Base.Hash), Size: spec.Base.Size})
	if postgres.NoRows(err) {
		missing.Body, err = &spec.Base, nil
	}
	if err != nil {
		return missing, err
	}
	pins := name.Pins(spec)
	if len(pins) == 0 {
		return missing, nil
	}
	p := db.GenerationsHereParams{}
	for _, pin := range pins {
		p.Names, p.Generations = append(p.Names, string(pin.Name)), append(p.Generations, pin.Generation)
	}
	rows, err := q.GenerationsHere(ctx, p)
	if err != nil {
		return missing, err
	}
	here := make(map[fleet.TemplatePin]bool, len(rows))
	for _, r := range rows {
		here[fleet.TemplatePin{Name: fleet.TemplateName(r.Name), Generation: r.Generation}] = true
	}
	for _, pin := range pins {
		if !here[pin] {
			missing.Pins = append(missing.Pins, pin)
		}
	}
	return missing, nil
}

func (a *applying) keepGeneration(ctx context.Context, c fleet.CopyChange) error {
	return a.q.PutCopiedGeneration(ctx, db.PutCopiedGenerationParams{
		Name: string(a.nameOf(c.Key)), Generation: c.Object.Generation, Spec: c.Object.Spec,
	})
}

func (a *applying) wait(ctx context.Context, c fleet.CopyChange) error {
	change, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return a.q.PutWaiting(ctx, db.PutWaitingParams{
		Region: string(c.Key.Region), Kind: string(c.Key.Kind), Scope: c.Key.Scope, Name: c.Key.Name, Owner: string(a.peer),
		OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, Change: change,
	})
}

// stopWaiting forgets states of copies of which this one, or a newer one, was taken.
func (a *applying) stopWaiting(ctx context.Context) error {
	return stopWaiting(ctx, a.q, a.peer, slices.DeleteFunc(a.taken(), func(c fleet.CopyChange) bool { return !a.pending[c.Key] }))
}

func stopWaiting(ctx context.Context, q *db.Queries, peer fleet.RegionName, taken []fleet.CopyChange) error {
	if len(taken) == 0 {
		return nil
	}
	c := columnsOf(keysOf(taken))
	p := db.DropWaitingParams{Owner: string(peer), Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names}
	for _, t := range taken {
		p.OwnerEpochs, p.Numbers = append(p.OwnerEpochs, t.Version.OwnerEpoch), append(p.Numbers, t.Version.Number)
	}
	return q.DropWaiting(ctx, p)
}

// DueCopies are changes of a peer that wait for what they are composed of, and that are to be tried now.
func (s *Store) DueCopies(ctx context.Context, peer fleet.RegionName, limit int32) ([]fleet.CopyChange, error) {
	rows, err := s.Q.DueWaiting(ctx, db.DueWaitingParams{Owner: string(peer), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]fleet.CopyChange, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal(r, &out[i]); err != nil {
			return nil, postgres.Unreadable("what waits", err)
		}
	}
	return out, nil
}

// PutOffCopy has a change that waits tried again later, at most after a time.
func (s *Store) PutOffCopy(ctx context.Context, c fleet.CopyChange, problem string, most time.Duration) error {
	return s.Q.PutOffWaiting(ctx, db.PutOffWaitingParams{
		Region: string(c.Key.Region), Kind: string(c.Key.Kind), Scope: c.Key.Scope, Name: c.Key.Name,
		OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, MostSeconds: most.Seconds(),
		Problem: strings.ToValidUTF8(strings.ReplaceAll(problem, "\x00", ""), ""), // a peer may have sent it
	})
}

// DropCopy forgets a change of a peer that waits.
func (s *Store) DropCopy(ctx context.Context, peer fleet.RegionName, c fleet.CopyChange) error {
	return stopWaiting(ctx, s.Q, peer, []fleet.CopyChange{c})
}
