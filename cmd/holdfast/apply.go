package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const applyLong = `Declare the objects of manifest files, and deliver what changed.

A file is YAML or JSON and holds any number of documents:

  kind: Instance            # or Project, Site, Pool, Template, Deployment, Fleet
  name: press-7
  site: plant-1             # for an Instance
  project: line-a           # "default" if omitted
  labels: {line: a}
  spec:                     # the body of the PUT, for example
    config: {speed: 40}     # or configFile: press.json, artifact: SHA-256, artifactFile: press.bin,
    run:                    # or template: NAME with overrides: {...}
      command: [/usr/bin/press]

All of them are checked before anything is applied. Then they are applied in the order
projects, sites, pools, templates, instances, deployments, fleet changes, with one line of output
each. A rejected object does not stop the others. File names in a spec (also contentFile in a
deployment's files) are relative to the manifest.

With --apply-set the objects are labelled as one set and sent to the region as one request. If any
of them is rejected, nothing is applied. --prune then deletes objects of the set that are not in the
files. --plan FILE applies a plan saved by "holdfast plan --out FILE", and nothing if an object was
written since.`

func (c *cli) newApplyCommand() *cobra.Command {
	var f mutationFlags
	var s applySettings
	cmd := &cobra.Command{
		Use: "apply -f FILE|DIR|-", Short: "Declare the objects of manifest files", Long: applyLong, Args: cobra.NoArgs,
		Example: "  holdfast apply -f plant-1/ --reason 'ticket 4711'\n  holdfast apply -f plant-1/ --apply-set plant-1 --prune",
	}
	s.add(cmd)
	cmd.Flags().StringVar(&s.plan, "plan", "", "apply exactly the plan in this file, saved by holdfast plan --out")
	f.add(cmd)
	f.addWait(cmd)
	f.addReason(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.many() {
			return c.applyMany(cmd.Context(), &s, &f)
		}
		manifests, err := c.readManifests(s.files, useApplied)
		if err != nil {
			return err
		}
		a := &applier{cli: c, flags: &f, put: (*api.Client).PutInstance, putFleet: (*api.Client).PutFleet, putDeployment: (*api.Client).PutDeployment}
		if !s.deploy {
			a.put, a.putFleet, a.putDeployment = (*api.Client).StageInstance, (*api.Client).StageFleet, (*api.Client).StageDeployment
		}
		var targets []target
		for _, m := range manifests {
			targets = append(targets, target{key: m.key(), at: m.at, do: a.apply(m)})
		}
		return c.change(cmd.Context(), "applied", &f, targets)
	}
	return cmd
}

// What is done with manifests, for errors.
const (
	useApplied = "applied"
	usePlanned = "planned"
)

// readManifests reads all manifests, and rejects all if one is bad.
func (c *cli) readManifests(files []string, use string) ([]*manifest, error) {
	if len(files) == 0 {
		return nil, &usageError{fmt.Errorf("-f is required: give the file or directory to be %s, or - for stdin", use)}
	}
	var manifests []*manifest
	var errs []error
	seen := map[fleet.ObjectKey]string{}
	for _, file := range files {
		some, err := readDocuments(file, c.stdin)
		if err != nil {
			errs = append(errs, err)
		}
		read, bad := make([]*manifest, len(some)), make([]error, len(some))
		onAllCores(len(some), func(i int) { read[i], bad[i] = c.readManifest(some[i]) })
		for i, m := range read {
			err := bad[i]
			if err == nil && seen[m.key()] != "" {
				err = fmt.Errorf("%s: %s is already declared in %s", m.at, m.key(), seen[m.key()])
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			seen[m.key()] = m.at
			manifests = append(manifests, m)
		}
	}
	if len(errs) == 0 {
		var err error
		if manifests, err = c.inOrder(manifests); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) > 0:
		text := strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "\n  ")
		return nil, fleet.Errorf(fleet.Invalid, "nothing was %s, because of:\n  %s", use, text)
	case len(manifests) == 0:
		return nil, fleet.Errorf(fleet.Invalid, "no manifest found in %s", strings.Join(files, ", "))
	}
	return manifests, nil
}

// inOrder sorts manifests so that objects come after those that they refer to.
func (c *cli) inOrder(manifests []*manifest) ([]*manifest, error) {
	var sorted []*manifest
	for _, kind := range c.declared {
		var some []*manifest
		for _, m := range manifests {
			if m.key().Kind == kind.Kind {
				some = append(some, m)
			}
		}
		if kind.Kind == fleet.KindTemplate {
			var err error
			if some, err = byComposition(some); err != nil {
				return nil, err
			}
		}
		sorted = append(sorted, some...)
	}
	return sorted, nil
}

// byComposition sorts templates so that each comes after the templates it is composed of.
func byComposition(templates []*manifest) ([]*manifest, error) {
	place, parts := map[string]int{}, make([][]string, len(templates))
	for i, m := range templates {
		place[m.Name], parts[i] = i, m.template.Compositions
	}
	order, circles := decide.ByComposition(parts, func(name string) (int, bool) { i, found := place[name]; return i, found })
	if len(circles) > 0 {
		m := templates[circles[0].Template]
		return nil, fmt.Errorf("%s: %s includes itself through other templates", m.at, m.key())
	}
	sorted := make([]*manifest, len(order))
	for i, at := range order {
		sorted[i] = templates[at]
	}
	return sorted, nil
}

// applier writes manifests to the region.
type applier struct {
	*cli
	flags    *mutationFlags
	put      func(*api.Client, context.Context, fleet.ObjectKey, api.InstancePut, api.Mutation) (api.Accepted, error)
	putFleet func(*api.Client, context.Context, string, api.FleetPut, api.Mutation) (api.Accepted, error)

	putDeployment func(*api.Client, context.Context, string, api.DeploymentPut, api.Mutation) (api.Accepted, error)
}

func (a *applier) apply(m *manifest) func(context.Context, *api.Client) (api.Accepted, error) {
	return func(ctx context.Context, client *api.Client) (api.Accepted, error) {
		return m.of.put(a, ctx, client, m)
	}
}

// manifestKind is what apply does for a kind of objects.
type manifestKind struct {
	// check decodes the spec of a manifest and checks what it can without the region.
	check func(m *manifest) error
	put   func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error)
}

// manifestKind is what apply does for a kind: as for a plain one, unless the kind has a row of its own.
func (c *cli) manifestKind(of fleet.ObjectKind) (row manifestKind, known bool) {
	known = slices.ContainsFunc(c.declared, func(k fleet.DeclaredKind) bool { return k.Kind == of })
	if row, own := manifestKinds()[of]; own {
		return row, known
	}
	return manifestKind{check: (*manifest).checkPlain, put: (*applier).putPlain}, known
}

// manifestKinds has a row for each kind that the CLI knows more of than its names.
func manifestKinds() map[fleet.ObjectKind]manifestKind {
	return map[fleet.ObjectKind]manifestKind{
		fleet.KindProject: {(*manifest).checkProject, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			return client.PutProject(ctx, m.Name, api.ProjectPut{Labels: m.Labels}, a.flags.mutation())
		}},
		fleet.KindSite: {(*manifest).checkSite, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			m.site.Project = first(m.site.Project, a.cli.flags.project)
			return client.PutSite(ctx, m.Name, m.site, a.flags.mutation())
		}},
		fleet.KindPool: {(*manifest).checkPool, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			m.pool.Project = first(m.pool.Project, a.cli.flags.project)
			return client.PutPool(ctx, m.Name, m.pool, a.flags.mutation())
		}},
		fleet.KindTemplate: {(*manifest).checkTemplate, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			m.template.Project = first(m.template.Project, a.cli.flags.project)
			return client.PutTemplate(ctx, m.Name, m.template, a.flags.mutation())
		}},
		fleet.KindInstance: {(*manifest).checkInstance, (*applier).applyInstance},
		fleet.KindDeployment: {(*manifest).checkDeployment, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			put := m.deployed.DeploymentPut
			put.Project, put.Reason = first(put.Project, a.cli.flags.project), first(put.Reason, a.flags.reason)
			return a.putDeployment(client, ctx, m.Name, put, a.flags.mutation())
		}},
		fleet.KindFleet: {(*manifest).checkFleet, func(a *applier, ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
			m.fleet.Project, m.fleet.Reason = first(m.fleet.Project, a.cli.flags.project), first(m.fleet.Reason, a.flags.reason)
			return a.putFleet(client, ctx, m.Name, m.fleet, a.flags.mutation())
		}},
	}
}

// applyInstance uploads the artifact first, so that the region knows what the spec refers to. A dry run uploads
// nothing.
func (a *applier) applyInstance(ctx context.Context, client *api.Client, m *manifest) (api.Accepted, error) {
	in := m.instance.InstancePut
	in.Project, in.Reason = first(in.Project, a.cli.flags.project), first(in.Reason, a.flags.reason)
	if file := m.instance.ArtifactFile; file != "" && !a.flags.dryRun {
		uploaded, err := a.uploadFile(ctx, client, m.path(file), api.Upload{Project: in.Project})
		if err != nil {
			return api.Accepted{}, err
		}
		in.Artifact = uploaded.SHA256
	}
	return a.put(client, ctx, m.key(), in, a.flags.mutation())
}
