package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// savedPlan is a request of many objects with its plan, as saved for apply --plan.
type savedPlan struct {
	Request api.PlanRequest `json:"request"`
	Release api.Release     `json:"release"`
	Plan    *api.Plan       `json:"plan"`
	Uploads []savedUpload   `json:"uploads,omitempty"`

	at map[api.PlanKey]string // where each object was declared
}

// savedUpload is a file to upload before the objects are applied.
type savedUpload struct {
	Path    string     `json:"path"`
	Project string     `json:"project,omitempty"`
	SHA256  fleet.Hash `json:"sha256"`
}

// request turns manifests into one request.
func (c *cli) request(m *manySettings, use, reason string) (*savedPlan, error) {
	manifests, err := c.readManifests(m.files, use)
	if err != nil {
		return nil, err
	}
	s := &savedPlan{Release: m.release(), at: map[api.PlanKey]string{}}
	s.Request = api.PlanRequest{ApplySet: m.set, Prune: m.prune, Reason: reason, Objects: make([]api.Manifest, len(manifests))}
	for i, one := range manifests {
		key := one.key()
		if one.Region != "" {
			return nil, fleet.Errorf(fleet.Invalid, "%s: region: a plan, and --apply-set, take objects of this region only", one.at).
				WithHint("apply it without --apply-set")
		}
		s.at[api.PlanKey{Kind: string(key.Kind), Site: key.Scope, Name: key.Name}] = one.at
		o := api.Manifest{Kind: string(key.Kind), Name: key.Name, Site: key.Scope, Project: c.projectOf(one), Service: one.Service, Labels: one.Labels, Spec: one.Spec}
		if one.instance.ArtifactFile != "" {
			if err := s.addArtifact(one, o.Project); err != nil {
				return nil, err
			}
		}
		s.Request.Objects[i] = o
	}
	return s, nil
}

// addArtifact has a file uploaded before the objects are applied.
func (s *savedPlan) addArtifact(m *manifest, project string) error {
	path, err := filepath.Abs(m.path(m.instance.ArtifactFile))
	if err != nil {
		return fmt.Errorf("%s: %w", m.at, err)
	}
	s.Request.Artifacts = append(s.Request.Artifacts, api.Artifact{SHA256: m.instance.Artifact, Size: m.artifactSize})
	s.Uploads = append(s.Uploads, savedUpload{Path: path, Project: project, SHA256: m.instance.Artifact})
	return nil
}

// save writes the file readable only by its owner: it contains configs with their secrets.
func (s *savedPlan) save(name string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	if err := durable.WriteFile(name, data); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

func readPlan(name string) (*savedPlan, error) {
	data, err := os.ReadFile(name) //nolint:gosec // the person who runs this names the file
	if err != nil {
		return nil, &usageError{err}
	}
	s := &savedPlan{}
	if err := json.Unmarshal(data, s); err != nil || s.Plan == nil {
		return nil, fleet.Errorf(fleet.Invalid, "%s contains no plan", name).WithHint("make one: holdfast plan -f FILE --out " + name)
	}
	s.Request.Plan = s.Plan
	return s, nil
}

// upload sends the request's artifacts to the region, if they still match the plan.
func (s *savedPlan) upload(ctx context.Context, c *cli, client *api.Client) error {
	done := map[savedUpload]bool{}
	for _, u := range s.Uploads {
		one := savedUpload{Project: u.Project, SHA256: u.SHA256}
		if done[one] {
			continue
		}
		done[one] = true
		uploaded, err := c.uploadFile(ctx, client, u.Path, api.Upload{Project: u.Project})
		if err != nil {
			return err
		}
		if uploaded.SHA256 != u.SHA256 {
			return fleet.Errorf(fleet.Precondition, "nothing was applied: %s has changed since it was planned", u.Path).WithHint("plan again")
		}
	}
	s.Request.Artifacts = nil
	return nil
}
