package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const applyLong = `Declare the objects of manifest files, and deliver what changed.

A file is YAML or JSON and holds any number of documents:

  kind: Instance            # or Organization, Project, Service, Site, Pool, Template, Deployment, Fleet
  name: press-7
  site: plant-1             # for an Instance
  project: line-a           # "default" if omitted
  region: eu                # that created it, if another region did and this one owns it
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
	c.addRegion(cmd, &f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.many() {
			return c.applyMany(cmd.Context(), &s, &f)
		}
		manifests, err := c.readManifests(s.files, useApplied)
		if err != nil {
			return err
		}
		a := &applier{cli: c, flags: &f, deploy: s.deploy}
		var targets []target
		for _, m := range manifests {
			targets = append(targets, target{key: m.key(), region: m.Region, at: m.at, do: a.apply(m)})
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
	seen := map[fleet.CopyKey]string{}
	for _, file := range files {
		some, err := readDocuments(file, c.stdin)
		if err != nil {
			errs = append(errs, err)
		}
		read, bad := make([]*manifest, len(some)), make([]error, len(some))
		onAllCores(len(some), func(i int) { read[i], bad[i] = c.readManifest(some[i]) })
		for i, m := range read {
			err := bad[i]
			if err == nil && seen[m.named()] != "" {
				err = fmt.Errorf("%s: %s is already declared in %s", m.at, m.key(), seen[m.named()])
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			seen[m.named()] = m.at
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
	for _, kind := range c.kinds {
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
		place[m.templateName(m.Name)] = i
		for _, part := range m.template.Compositions {
			parts[i] = append(parts[i], m.templateName(part))
		}
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
	flags  *mutationFlags
	deploy bool
}

func (a *applier) apply(m *manifest) func(context.Context, *api.Client, api.Mutation) (api.Accepted, error) {
	return func(ctx context.Context, client *api.Client, by api.Mutation) (api.Accepted, error) {
		if err := a.upload(ctx, client, m); err != nil {
			return api.Accepted{}, err
		}
		body, err := a.body(m)
		if err != nil {
			return api.Accepted{}, err
		}
		if m.kind.works && !a.deploy {
			return client.Stage(ctx, m.key(), body, by)
		}
		return client.Put(ctx, m.key(), body, by)
	}
}

// upload sends the artifact of an instance first, so that the region knows what the spec refers to. A dry run uploads
// nothing.
func (a *applier) upload(ctx context.Context, client *api.Client, m *manifest) error {
	file := m.instance.ArtifactFile
	if file == "" || a.flags.dryRun {
		return nil
	}
	uploaded, err := a.uploadFile(ctx, client, m.path(file), api.Upload{Project: a.projectOf(m)})
	if err != nil {
		return err
	}
	m.instance.Artifact = uploaded.SHA256
	m.Spec, err = json.Marshal(m.instance.InstancePut)
	return err
}

// body is what the PUT of the object takes: its spec, and what a manifest has beside it.
func (a *applier) body(m *manifest) (json.RawMessage, error) {
	beside := struct {
		Project string            `json:"project,omitempty"`
		Service string            `json:"service,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
		Reason  string            `json:"reason,omitempty"`
	}{Project: a.projectOf(m), Service: m.Service, Labels: m.Labels}
	var spec struct {
		Reason *string `json:"reason"`
	}
	if m.kind.works && a.flags.reason != "" {
		if err := json.Unmarshal(m.Spec, &spec); err != nil {
			return nil, inSpec(err)
		}
		if spec.Reason == nil {
			beside.Reason = a.flags.reason
		}
	}
	head, err := json.Marshal(beside)
	if err != nil {
		return nil, err
	}
	rest := bytes.TrimSpace(bytes.TrimSpace(m.Spec)[1:]) // without its brace
	if rest[0] != '}' && len(head) > len("{}") {
		head[len(head)-1] = ','
		return append(head, rest...), nil
	}
	return append(head[:len(head)-1], rest...), nil
}

// projectOf is the project that an object is declared in, "" for the region's default.
func (c *cli) projectOf(m *manifest) string {
	if m.kind.NoProject {
		return ""
	}
	return first(m.Project, c.flags.project)
}
