package api

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// maxDeployment is the longest declaration: its files, with what JSON escapes of them.
const maxDeployment = 8 << 20

// deploymentMade is a checked declaration with the bodies that it refers to, none of them stored.
type deploymentMade struct {
	spec       fleet.DeploymentSpec
	files      map[fleet.Hash]string
	definition []byte
}

// content names the definition.
func (m deploymentMade) content() fleet.Content { return contentOfText(m.definition) }

// makeDeployment checks a declaration and generates what nodes are to run of it.
func makeDeployment(by *definition.Registry, put DeploymentPut) (deploymentMade, error) {
	m := deploymentMade{files: map[fleet.Hash]string{}}
	if err := put.checkReplicas(); err != nil {
		return m, err
	}
	m.spec = deploymentSpecOf(put, m.files).WithDefaults()
	return m, m.generate(by)
}

// checkReplicas refuses a bound that is none, and those that contradict each other: in a spec a first count
// of 0 says that none was given, here it was written.
func (p DeploymentPut) checkReplicas() error {
	if most := p.Replicas.Max; most != nil && *most == 0 {
		return fleet.Errorf(fleet.Invalid, "invalid max 0").At("/replicas/max").
			WithHint(`to run none, declare "state": "stopped", or scale to 0 where min is 0`)
	}
	return p.Replicas.bounds().Validate()
}

// generate makes the definition of the spec.
func (m *deploymentMade) generate(by *definition.Registry) error {
	var err error
	_, m.definition, err = by.Generate(m.spec, m.files)
	return ofPut(err)
}

// Check checks what does not depend on the region, which may have other settings.
func (p DeploymentPut) Check() error {
	if err := p.checkReplicas(); err != nil {
		return err
	}
	return ofPut(definition.Check(deploymentSpecOf(p, map[fleet.Hash]string{})))
}

// deploymentSpecOf is the spec of a declaration; the contents of its files go into files.
func deploymentSpecOf(put DeploymentPut, files map[fleet.Hash]string) fleet.DeploymentSpec {
	spec := fleet.DeploymentSpec{
		Type: put.Type, Model: put.Model, ModelDefinition: put.ModelDefinition,
		Process: fleet.Process{
			Driver: put.Driver, Image: put.Image, Command: put.Command, Args: put.Args, Env: put.Env, Ports: put.Ports, Health: put.Health,
			Startup: put.Startup, StopSeconds: put.StopSeconds, PreStart: put.PreStart, SharedMemory: int64(put.SharedMemory),
		},
		Resources: fleet.Resources{CPU: put.Resources.CPU, Memory: int64(put.Resources.Memory), GPUs: put.Resources.GPUs},
		Replicas:  put.Replicas.bounds(), Placement: fleet.PlacementSpec(put.Placement), State: put.State, Recovery: put.Recovery,
		SecretEnv: put.SecretEnv,
	}
	for _, f := range put.Files {
		body := fleet.Content{Kind: fleet.ContentArtifact, Hash: compose.HashOf([]byte(f.Content)), Size: int64(len(f.Content))}
		files[body.Hash] = f.Content
		spec.Process.Files = append(spec.Process.Files, fleet.ProcessFile{Path: f.Path, Body: &body})
	}
	return spec
}

// ofPut turns a place in a spec into one in the body of its PUT, where what runs stands flat.
func ofPut(err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err
	}
	if field, inProcess := strings.CutPrefix(e.Field, "/process"); inProcess && (field == "" || field[0] == '/') {
		return e.At(cutField(field))
	}
	return err
}

// keepDeployment stores the bodies of a declaration for its project.
func (s *server) keepDeployment(ctx context.Context, project fleet.ProjectName, m deploymentMade) error {
	bodies, hashes := [][]byte{m.definition}, []fleet.Hash{m.content().Hash}
	for hash, text := range m.files {
		bodies, hashes = append(bodies, []byte(text)), append(hashes, hash)
	}
	stored, err := s.store.PutBodies(ctx, project, bodies)
	if err != nil {
		return err
	}
	for i, hash := range stored {
		if hash != hashes[i] {
			return fleet.Errorf(fleet.Internal, "a body was stored under another hash than its own")
		}
	}
	return nil
}

// putDeploymentOf is the store's change of a declaration.
func (m deploymentMade) put(w postgres.Write) postgres.DeploymentPut {
	return postgres.DeploymentPut{Write: w, Spec: m.spec, Definition: m.content()}
}

// remake generates the definition of a spec that stands, from its stored files.
func (s *server) remake(ctx context.Context, spec fleet.DeploymentSpec) (deploymentMade, error) {
	m := deploymentMade{spec: spec, files: map[fleet.Hash]string{}}
	for _, f := range spec.Process.Files {
		if f.Body == nil {
			continue
		}
		text, err := s.load(ctx, storedLayer{name: "file " + f.Path, hash: f.Body.Hash, size: f.Body.Size})
		if err != nil {
			return m, err
		}
		m.files[f.Body.Hash] = string(text)
	}
	return m, m.generate(s.definitions)
}
