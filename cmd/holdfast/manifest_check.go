package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/documents"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// readManifest decodes a document strictly and checks what it can without the region, so that an error in the last
// file is found before the first one is applied.
func (c *cli) readManifest(d documents.Document) (*manifest, error) {
	m := &manifest{at: d.At, dir: d.Dir}
	if err := strictly(d.Data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", d.At, err)
	}
	name := fleet.ObjectKind(strings.ToLower(m.Kind))
	m.kind.DeclaredKind = name.Declared()
	if i := slices.IndexFunc(c.kinds, func(k declaredKind) bool { return k.Kind == name }); i >= 0 {
		m.kind = c.kinds[i]
	}
	if err := m.check(c); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.At, m.key(), err)
	}
	return m, nil
}

func (m *manifest) check(c *cli) error {
	if m.Kind == "" {
		return errors.New("kind is required: use " + c.declared.Titles())
	}
	if err := fleet.ValidateName("name", m.Name); err != nil {
		return err
	}
	switch {
	case m.Project != "" && m.kind.NoProject:
		return fmt.Errorf("project: objects of kind %s belong to no project", m.kind.Title)
	case m.Service != "" && m.kind.Holder:
		return fmt.Errorf("service: objects of kind %s belong to no service", m.kind.Title)
	}
	for _, of := range []struct{ field, name string }{{"project", m.Project}, {"region", m.Region}, {"service", m.Service}} {
		if err := optionalName(of.field, of.name); err != nil {
			return err
		}
	}
	if err := fleet.ValidateLabels("labels", m.Labels); err != nil {
		return err
	}
	if m.Site != "" && !m.kind.OfSite {
		return fmt.Errorf("site: only an Instance has a site")
	}
	if len(m.Spec) == 0 || string(m.Spec) == "null" {
		m.Spec = json.RawMessage("{}")
	}
	switch {
	case m.kind.Title == "":
		return fmt.Errorf("unknown kind %.40q; use %s", m.Kind, c.declared.Titles())
	case m.kind.check == nil:
		return m.checkObject()
	}
	return m.kind.check(m)
}

func optionalName(field, name string) error {
	if name == "" {
		return nil
	}
	return fleet.ValidateName(field, name)
}

// checkObject leaves the spec to the region.
func (m *manifest) checkObject() error {
	var spec map[string]json.RawMessage
	if err := strictly(m.Spec, &spec); err != nil {
		return inSpec(err)
	}
	if spec["project"] != nil || spec["service"] != nil || spec["labels"] != nil {
		return errBeside
	}
	return nil
}

// checkPlain is the check of a plain kind, by the function that makes its spec.
func checkPlain[P, S any](of func(P) (S, error)) func(*manifest) error {
	return func(m *manifest) error {
		var put P
		if err := strictly(m.Spec, &put); err != nil {
			return inSpec(err)
		}
		if err := m.checkObject(); err != nil {
			return err
		}
		return checked(of(put))
	}
}

func (m *manifest) checkProject() error {
	var put api.ProjectPut
	if err := strictly(m.Spec, &put); err != nil {
		return inSpec(err)
	}
	if put.Labels != nil {
		return errBeside
	}
	return checked(declare.Project(m.Name, put))
}

func (*manifest) checkRegion() error {
	return errors.New("a region declares itself: start its servers with --location and --local-network")
}

func (m *manifest) checkTemplate() error {
	if err := strictly(m.Spec, &m.template); err != nil {
		return inSpec(err)
	}
	if m.template.Project != "" || m.template.Service != "" || m.template.Labels != nil {
		return errBeside
	}
	return inSpec(declare.CheckTemplate(m.Name, m.template))
}

func (m *manifest) checkInstance() error {
	if err := fleet.ValidateName("site", m.Site); err != nil {
		return err
	}
	in := &m.instance
	if err := strictly(m.Spec, in); err != nil {
		return inSpec(err)
	}
	if in.Project != "" || in.Service != "" || in.Labels != nil {
		return errBeside
	}
	if err := m.readFiles(); err != nil {
		return inSpec(err)
	}
	return inSpec(declare.CheckInstance(in.InstancePut))
}

func (m *manifest) checkFleet() error {
	var put api.FleetPut
	if err := strictly(m.Spec, &put); err != nil {
		return inSpec(err)
	}
	if put.Project != "" || put.Service != "" || put.Labels != nil {
		return errBeside
	}
	var err error // without what is empty
	if m.Spec, err = json.Marshal(put); err != nil {
		return inSpec(err)
	}
	return inSpec(declare.CheckFleet(put))
}

// readFiles replaces configFile and artifactFile with config and artifact.
func (m *manifest) readFiles() error {
	in := &m.instance
	if in.ConfigFile != "" {
		if len(in.Config) > 0 {
			return errors.New("give either config or configFile")
		}
		data, err := os.ReadFile(m.path(in.ConfigFile))
		if err != nil {
			return fmt.Errorf("configFile: %w", err)
		}
		if err := checkConfig(in.ConfigFile, data); err != nil {
			return fmt.Errorf("configFile: %w", err)
		}
		in.Config = data
	}
	if in.ArtifactFile != "" {
		if err := m.hashArtifact(); err != nil {
			return err
		}
	}
	var err error // in the region's format, without what is empty
	m.Spec, err = json.Marshal(in.InstancePut)
	return err
}

func (m *manifest) hashArtifact() error {
	in := &m.instance
	if in.Artifact != "" {
		return errors.New("give either artifact or artifactFile")
	}
	f, err := os.Open(m.path(in.ArtifactFile))
	if err != nil {
		return fmt.Errorf("artifactFile: %w", err)
	}
	hash, size, err := api.HashOf(f)
	in.Artifact, m.artifactSize = hash, size
	return errors.Join(err, f.Close())
}

// path is a file name of the spec, resolved relative to the manifest.
func (m *manifest) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(m.dir, name)
}

var errBeside = errors.New("spec: move project, service and labels out of spec, to the top level")

// inSpec prefixes the place of an error with "spec".
func inSpec(err error) error {
	var e *fleet.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e.At(strings.TrimSuffix("spec/"+strings.TrimPrefix(e.Field, "/"), "/"))
	}
	return fmt.Errorf("spec: %w", err)
}

// strictly decodes JSON and rejects unknown fields, with places as in the rest of a manifest.
func strictly(data []byte, into any) error {
	err := decode.Manifest(data, into)
	var e *fleet.Error
	if errors.As(err, &e) {
		return e.At(strings.TrimPrefix(e.Field, "/"))
	}
	return err
}

// checked is inSpec of what makes a spec.
func checked[S any](_ S, err error) error { return inSpec(err) }
