package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// keepDeployment stores the bodies of a declaration for its project.
func (s *server) keepDeployment(ctx context.Context, project fleet.ProjectName, m declare.Made) error {
	bodies, hashes := [][]byte{m.Definition}, []fleet.Hash{m.Content().Hash}
	for hash, text := range m.Files {
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

// deploymentPut is the store's change of a declaration.
func deploymentPut(m declare.Made, w postgres.Write) deployments.DeploymentPut {
	return deployments.DeploymentPut{Write: w, Spec: m.Spec, Definition: m.Content(), Compare: m.Changes}
}

// remake generates the definition of a spec that stands, from its stored files.
func (s *server) remake(ctx context.Context, spec fleet.DeploymentSpec) (declare.Made, error) {
	m := declare.Made{Spec: spec, Files: map[fleet.Hash]string{}}
	for _, f := range spec.Process.Files {
		if f.Body == nil {
			continue
		}
		text, err := s.load(ctx, storedLayer{name: "file " + f.Path, hash: f.Body.Hash, size: f.Body.Size})
		if err != nil {
			return m, err
		}
		m.Files[f.Body.Hash] = string(text)
	}
	return m, m.Generate(s.definitions)
}
