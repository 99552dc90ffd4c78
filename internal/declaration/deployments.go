package declaration

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// Deployment is a declared deployment on its way to the store.
type Deployment struct {
	Put api.DeploymentPut
	declare.Made
}

// ReadDeployment reads the body of a PUT, whose project is put's where it names none.
func (m *Maker) ReadDeployment(raw []byte, put api.DeploymentPut) (d Deployment, err error) {
	d.Put = put
	if err := decode.Body(raw, &d.Put); err != nil {
		return d, err
	}
	d.Made, err = declare.Deployment(m.Definitions, d.Put)
	return d, err
}

// Change is what the store takes.
func (d Deployment) Change(w postgres.Write) deployments.DeploymentPut {
	return deployments.DeploymentPut{Write: w, Spec: d.Spec, Definition: d.Made.Content(), Compare: d.Changes, Reason: d.Put.Reason}
}

// CheckPlaces refuses sites and pools that do not exist for the caller, or are of another project: they would leave the deployment
// without a place.
func (m *Maker) CheckPlaces(ctx context.Context, of Of, p fleet.PlacementSpec) error {
	return p.Each(func(key fleet.ObjectKey, field string) error {
		if err := fleet.ValidateName(field, key.Name); err != nil {
			return err
		}
		o, err := m.here(ctx, of, key, field)
		if err == nil && !of.Project.Uses(o.Project) {
			return fleet.OtherPlace(key, field, of.Project)
		}
		return err
	})
}

// KeepDeployment stores the bodies of a deployment for its project.
func (m *Maker) KeepDeployment(ctx context.Context, project fleet.ProjectName, d declare.Made) error {
	bodies, hashes := [][]byte{d.Definition}, []fleet.Hash{d.Content().Hash}
	for hash, text := range d.Files {
		bodies, hashes = append(bodies, []byte(text)), append(hashes, hash)
	}
	return m.putBodies(ctx, project, bodies, hashes)
}

// putBodies stores bodies of these hashes.
func (m *Maker) putBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte, hashes []fleet.Hash) error {
	stored, err := m.PutBodies(ctx, project, bodies)
	if err != nil {
		return err
	}
	for i, hash := range hashes {
		if i >= len(stored) || stored[i] != hash {
			return fleet.Errorf(fleet.Internal, "a body was stored under another hash than its own")
		}
	}
	return nil
}

// Release is the change that releases a spec that was declared before, with its bodies stored.
func (m *Maker) Release(ctx context.Context, w postgres.Write, spec fleet.DeploymentSpec) (deployments.DeploymentPut, error) {
	d := Deployment{Made: declare.Made{Spec: spec, Files: map[fleet.Hash]string{}}}
	for _, f := range spec.Process.Files {
		if f.Body == nil {
			continue
		}
		text, err := m.Load(ctx, "file "+f.Path, f.Body.Hash)
		if err != nil {
			return deployments.DeploymentPut{}, err
		}
		d.Files[f.Body.Hash] = string(text)
	}
	if err := d.Generate(m.Definitions); err != nil {
		return deployments.DeploymentPut{}, err
	}
	if err := m.KeepDeployment(ctx, w.Project, d.Made); err != nil {
		return deployments.DeploymentPut{}, err
	}
	p := d.Change(w)
	p.Deploy, p.Converge, p.Door = true, true, w.Door
	return p, nil
}
