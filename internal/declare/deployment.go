package declare

import (
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Made is a checked declaration with the bodies that it refers to, none of them stored.
type Made struct {
	Spec       fleet.DeploymentSpec
	Files      map[fleet.Hash]string
	Definition []byte
}

// Content names the definition.
func (m Made) Content() fleet.Content {
	return fleet.Content{Kind: fleet.ContentJSON, Hash: compose.HashOf(m.Definition), Size: int64(len(m.Definition))}
}

// MaxDeployment is the longest declaration: its files, with what JSON escapes of them.
const MaxDeployment = 8 << 20

// Deployment checks a declaration and generates what nodes are to run of it.
func Deployment(by *definition.Registry, put api.DeploymentPut) (Made, error) {
	m := Made{Files: map[fleet.Hash]string{}}
	if err := checkPut(put); err != nil {
		return m, err
	}
	m.Spec = deploymentSpecOf(put, m.Files).WithDefaults()
	made, err := m.generate(by)
	if err == nil { // with the ports of its type
		err = made.CheckPortNames()
	}
	return m, ofPut(err)
}

// checkPut refuses what the spec does not show.
func checkPut(put api.DeploymentPut) error {
	if err := CheckTexts(put.Labels, put.Reason); err != nil {
		return err
	}
	return checkBounds(put.Replicas)
}

// checkBounds refuses a bound that is none, and those that contradict each other: in a spec a first count
// of 0 says that none was given, here it was written.
func checkBounds(c api.ReplicaCounts) error {
	if most := c.Max; most != nil && *most == 0 {
		return fleet.Errorf(fleet.Invalid, "invalid max 0").At("/replicas/max").
			WithHint(`to run none, declare "state": "stopped", or scale to 0 where min is 0`)
	}
	return c.Bounds().Validate()
}

// Generate makes the definition of the spec.
func (m *Made) Generate(by *definition.Registry) error {
	_, err := m.generate(by)
	return ofPut(err)
}

func (m *Made) generate(by *definition.Registry) (made fleet.Definition, err error) {
	made, m.Definition, err = by.Generate(m.Spec, m.Files)
	return made, err
}

// CheckDeployment refuses what is wrong in a declaration whatever the settings of the region.
func CheckDeployment(put api.DeploymentPut) error {
	if err := checkPut(put); err != nil {
		return err
	}
	spec := deploymentSpecOf(put, map[fleet.Hash]string{})
	if err := definition.Check(spec); err != nil {
		return ofPut(err)
	}
	if len(spec.Process.Ports) == 0 { // its type may have some
		return nil
	}
	for i, f := range put.Files {
		spec.Process.Files[i].Content = f.Content
	}
	return ofPut(spec.Process.CheckPortNames())
}

// deploymentSpecOf is the spec of a declaration; the contents of its files go into files.
func deploymentSpecOf(put api.DeploymentPut, files map[fleet.Hash]string) fleet.DeploymentSpec {
	spec := fleet.DeploymentSpec{
		Type: put.Type, Model: put.Model, ModelDefinition: put.ModelDefinition,
		Process: fleet.Process{
			Driver: put.Driver, Image: put.Image, Command: put.Command, Args: put.Args, Env: put.Env, Ports: put.Ports, Health: put.Health,
			Readiness: put.Readiness, Startup: put.Startup, StopSeconds: put.StopSeconds, PreStart: put.PreStart, SharedMemory: int64(put.SharedMemory),
		},
		Resources: fleet.Resources{CPU: put.Resources.CPU, Memory: int64(put.Resources.Memory), GPUs: put.Resources.GPUs},
		Replicas:  put.Replicas.Bounds(), Placement: fleet.PlacementSpec(put.Placement), State: put.State, Recovery: put.Recovery, Strategy: put.Strategy,
		Update: put.Update, MemoryKeepsVersion: put.MemoryKeepsVersion, SecretEnv: put.SecretEnv,
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
		return e.At(fleet.CutField(field))
	}
	return err
}
