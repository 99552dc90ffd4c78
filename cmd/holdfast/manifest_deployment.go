package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/internal/declare"
)

func (m *manifest) checkDeployment() error {
	in := &m.deployed
	if err := strictly(m.Spec, in); err != nil {
		return inSpec(err)
	}
	if in.Project != "" || in.Service != "" || in.Labels != nil {
		return errBeside
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
	var err error
	m.Spec, err = json.Marshal(in.DeploymentPut)
	return err
}
