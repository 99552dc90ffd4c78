package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
)

func (m *manifest) checkPool() error {
	if err := strictly(m.Spec, &m.pool); err != nil {
		return inSpec(err)
	}
	if err := m.adopt(&m.pool.Project, &m.pool.Labels); err != nil {
		return err
	}
	return checked(declare.Pool(m.pool))
}

func (m *manifest) checkDeployment() error {
	in := &m.deployed
	if err := strictly(m.Spec, in); err != nil {
		return inSpec(err)
	}
	if err := m.adopt(&in.Project, &in.Labels); err != nil {
		return err
	}
	if err := m.readContents(); err != nil {
		return inSpec(err)
	}
	return inSpec(declare.CheckDeployment(in.DeploymentPut))
}

// readContents replaces contentFile with content.
func (m *manifest) readContents() error {
	in := &m.deployed
	for i, f := range in.Files {
		if f.ContentFile != "" {
			if f.Content != "" {
				return fmt.Errorf("files/%d: give either content or contentFile", i)
			}
			data, err := os.ReadFile(m.path(f.ContentFile))
			if err != nil {
				return fmt.Errorf("files/%d/contentFile: %w", i, err)
			}
			if !utf8.Valid(data) {
				return errors.New("contentFile: " + f.ContentFile + " is not a text file")
			}
			f.Content = string(data)
		}
		in.DeploymentPut.Files = append(in.DeploymentPut.Files, f.DeploymentFile)
	}
	return nil
}

// addDeployment replaces file names with their contents.
func addDeployment(m *manifest, o *api.Manifest) error {
	names := false
	for _, f := range m.deployed.Files {
		names = names || f.ContentFile != ""
	}
	if !names {
		return nil // the spec has the region's format
	}
	in := m.deployed.DeploymentPut
	in.Project, in.Labels = "", nil // they are next to the spec
	var err error
	if o.Spec, err = json.Marshal(in); err != nil {
		return fmt.Errorf("%s: %w", m.at, err)
	}
	return nil
}
