//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// field is some instances under one label, and the fleet change of its name over them.
type field struct {
	*stack
	name      string
	keys      []fleet.ObjectKey // in the order of site and name
	witnesses map[fleet.ObjectKey]*witness
	version   int // that the newest change brings
	fieldOptions
}

// fieldOptions are what is not as in every field.
type fieldOptions struct {
	running    int    // so many of each site run a command that must never run twice
	broken     string // a file without which no command starts with version 2
	exits      bool   // with version 2 every command ends after a second
	template   bool   // the versions are generations of a template
	durability fleet.Durability
}

// fieldConfig is what every instance of a field has in its config, and nothing else may show.
const fieldConfig = "field-config-marker"

// newField declares n instances at each site, and delivers them by a first fleet change.
func newField(t *testing.T, s *stack, name string, n int, o fieldOptions, sites ...string) *field {
	t.Helper()
	f := declareField(t, s, name, n, o, sites...)
	requireSucceeded(t, s.ended(t, f.run(t, api.FleetPut{}).ID))
	f.good(t)
	return f
}

func declareField(t *testing.T, s *stack, name string, n int, o fieldOptions, sites ...string) *field {
	t.Helper()
	f := &field{stack: s, name: name, witnesses: map[fleet.ObjectKey]*witness{}, fieldOptions: o}
	var all api.PlanRequest
	if o.template {
		f.putTemplate(t)
	}
	for _, site := range sites {
		for i := range n {
			key := instanceKey(site, fmt.Sprintf("%s-%02d", name, i))
			spec, err := json.Marshal(f.declared(t, key, i))
			require.NoError(t, err)
			all.Objects = append(all.Objects, api.Manifest{
				Kind: "Instance", Name: key.Name, Site: site, Labels: map[string]string{"field": name}, Spec: spec,
			})
			f.keys = append(f.keys, key)
		}
	}
	s.apply(t, all)
	return f
}

// declared is one instance as it is before the first change.
func (f *field) declared(t *testing.T, key fleet.ObjectKey, i int) api.InstancePut {
	t.Helper()
	put := api.InstancePut{Config: f.config(key, 0), Durability: f.durability}
	if f.template {
		put.Config, put.Template, put.Overrides = nil, f.name, fmt.Appendf(nil, `{"instance":%q}`, key.Name)
	}
	if i < f.running {
		w := newWitness(t)
		put.Run = w.run(0)
		if f.broken != "" {
			put.Run = w.run(2) // a busy machine is slow to see it end
			put.Run.Env["MENDED"] = f.broken
			put.Run.Command[2] = `grep -q '"version":2' "$HOLDFAST_CONFIG" && [ ! -e "$MENDED" ] && exit 1` + "\n" + witnessScript
		}
		if f.exits {
			put.Run.Command[2] = `grep -q '"version":2' "$HOLDFAST_CONFIG" && { sleep 1; exit 3; }` + "\n" + witnessScript
		}
		f.witnesses[key] = w
	}
	return put
}

// putTemplate makes the generation of the field's template that brings its version.
func (f *field) putTemplate(t *testing.T) {
	t.Helper()
	m := api.Mutation{IdempotencyKey: rand.Text()}
	base := api.TemplatePut{Base: fmt.Appendf(nil, `{"marker":%q,"version":%d}`, fieldConfig, f.version)}
	require.NoError(t, insist(t, "put template "+f.name, func(ctx context.Context) error {
		_, err := f.api.PutTemplate(ctx, f.name, base, m)
		return err
	}))
}

// apply declares objects and delivers none.
func (s *stack) apply(t *testing.T, all api.PlanRequest) {
	t.Helper()
	m := api.Mutation{IdempotencyKey: rand.Text()}
	var applied api.Applied
	require.NoError(t, insist(t, "apply", func(ctx context.Context) (err error) {
		applied, err = s.api.Apply(ctx, all, api.ReleaseNone, m)
		return err
	}))
	require.Zero(t, applied.Failed, "%+v", applied)
}

// config is what an instance holds in a version, in the very bytes that the region makes.
func (f *field) config(key fleet.ObjectKey, version int) []byte {
	return fmt.Appendf(nil, `{"instance":%q,"marker":%q,"version":%d}`, key.Name, fieldConfig, version)
}

// next completes a fleet change of the field to its next version.
func (f *field) next(t *testing.T, in api.FleetPut) api.FleetPut {
	t.Helper()
	f.version++
	if f.template {
		f.putTemplate(t)
		in.Change.Template, in.Change.TemplateGeneration = f.name, int64(f.version+1)
	}
	return f.again(in)
}

// again completes a fleet change of the field to the version that it has.
func (f *field) again(in api.FleetPut) api.FleetPut {
	if !f.template {
		in.Change.Patch = fmt.Appendf(nil, `{"version":%d}`, f.version)
	}
	in.Selector.Labels = map[string]string{"field": f.name}
	if in.MinRunSeconds == nil { // waves that wait are the subject of one test
		in.MinRunSeconds = new(int64)
	}
	return in
}

// run puts the fleet change for the next version, which starts a run.
func (f *field) run(t *testing.T, in api.FleetPut) api.Operation {
	t.Helper()
	return f.putFleet(t, f.next(t, in))
}

func (f *field) putFleet(t *testing.T, in api.FleetPut) api.Operation {
	t.Helper()
	return f.change(t, "put fleet "+f.name, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return f.api.PutFleet(ctx, f.name, in, m)
	})
}

// stage declares the next version, and runs nothing.
func (f *field) stage(t *testing.T, in api.FleetPut) {
	t.Helper()
	m := api.Mutation{IdempotencyKey: rand.Text()}
	in = f.next(t, in)
	require.NoError(t, insist(t, "stage fleet "+f.name, func(ctx context.Context) error {
		_, err := f.api.StageFleet(ctx, f.name, in, m)
		return err
	}))
}

// turn asks something of the field's fleet change; the operation is nil when there is none.
func (f *field) turn(t *testing.T, verb string) *api.Operation {
	t.Helper()
	m := api.Mutation{IdempotencyKey: rand.Text()}
	var out api.Accepted
	require.NoError(t, insist(t, verb, func(ctx context.Context) (err error) {
		out, err = f.api.TurnFleet(ctx, f.name, verb, api.ActionRequest{}, m)
		return err
	}), verb)
	return out.Operation
}

func (f *field) newest(t *testing.T) api.FleetRun {
	t.Helper()
	var runs api.List[api.FleetRun]
	require.NoError(t, insist(t, "runs of "+f.name, func(ctx context.Context) (err error) {
		runs, err = f.api.FleetRuns(ctx, f.name, api.Page{Limit: 1})
		return err
	}))
	return runs.Items[0]
}

// until waits for the newest run to look as is asked.
func (f *field) until(t *testing.T, what string, is func(api.FleetRun) bool) api.FleetRun {
	t.Helper()
	var run api.FleetRun
	waitFor(t, f.name+" "+what, func(context.Context) error {
		if run = f.newest(t); !is(run) {
			return fmt.Errorf("%+v", run)
		}
		return nil
	})
	return run
}

// targets are those of the newest run, by name of their instance and site.
func (f *field) targets(t *testing.T) map[fleet.ObjectKey]api.FleetTarget {
	t.Helper()
	all := map[fleet.ObjectKey]api.FleetTarget{}
	page := api.Page{Limit: 100}
	for first := true; first || page.Cursor != ""; first = false {
		list, err := f.api.FleetTargets(t.Context(), f.name, api.FleetTargetQuery{Page: page})
		require.NoError(t, err)
		for _, target := range list.Items {
			all[instanceKey(target.Site, target.Instance)] = target
		}
		page.Cursor = list.Next
	}
	return all
}

// good checks that the nodes of every instance hold the newest version, and that each of its
// commands runs once, with it.
func (f *field) good(t *testing.T) {
	t.Helper()
	for _, key := range f.keys {
		f.holds(t, key, f.version)
	}
}

// holds checks that both nodes hold one version of an instance.
func (f *field) holds(t *testing.T, key fleet.ObjectKey, version int) {
	t.Helper()
	hash := hashOf(f.config(key, version))
	f.held(t, key, hash)
	f.activeFile(t, key, "config.json", hash)
	if w := f.witnesses[key]; w != nil {
		w.runs(t, hash)
		w.alone(t)
	}
}

// underWay waits until the active of a site was told of a batch of the field.
func (f *field) underWay(t *testing.T, site string) {
	t.Helper()
	waitFor(t, "a batch of "+f.name+" is under way at "+site, func(ctx context.Context) error {
		n, err := f.count(ctx, `SELECT count(*) FROM batches b JOIN deliveries d ON d.batch_id = b.id JOIN delivery_nodes n ON n.delivery_id = d.id
			WHERE b.fleet = $1 AND b.site = $2 AND b.state = 'open' AND n.state = 'notified'`, f.name, site)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
}

// quiet checks that nothing of any fleet change is left half done.
func (s *stack) quiet(t *testing.T) {
	t.Helper()
	s.settled(t)
	for what, query := range map[string]string{
		"open batches": `SELECT count(*) FROM batches WHERE state = 'open'`,
		"targets of ended runs on their way": `SELECT count(*) FROM fleet_targets t JOIN fleet_runs r USING (fleet, run)
			WHERE t.state = 'delivering' OR r.state = 'succeeded' AND t.state IN ('waiting', 'staged')`,
		"deliveries that nobody settled": `SELECT count(*) FROM deliveries WHERE state NOT IN ('open', 'succeeded', 'staged', 'failed', 'superseded', 'cancelled') AND settled_as IS NULL`,
	} {
		waitFor(t, "no "+what, func(ctx context.Context) error {
			n, err := s.count(ctx, query)
			if err == nil && n > 0 {
				err = fmt.Errorf("%d %s", n, what)
			}
			return err
		})
	}
}

// asInRegion checks that every instance that the region has deployed is on both nodes of its
// site in the very version that it says, and that nothing is desired which is not deployed.
func (s *stack) asInRegion(t *testing.T) {
	t.Helper()
	rows, err := s.pg.Query(t.Context(), `SELECT s.site, s.name, encode(r.body_hash, 'hex') FROM subjects s
		JOIN revisions r ON r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision WHERE r.action <> 'delete'`)
	require.NoError(t, err)
	type desired struct{ Site, Name, Hash string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[desired])
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, d := range all {
		s.held(t, instanceKey(d.Site, d.Name), d.Hash)
	}
}

// touch makes a file that a command looks for.
func touch(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
}
