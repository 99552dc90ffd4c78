package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// mesh is several regions under one supervisor.
type mesh struct {
	*stack
	regions map[string]*stack
}

// startMesh starts joined regions of one site each.
func startMesh(t *testing.T, count int) *mesh {
	t.Helper()
	realOnly(t)
	m := &mesh{launchStack(t, 1, fmt.Sprintf("--regions=%d", count)), map[string]*stack{}}
	require.True(t, m.up(), "%s", m.said)
	for _, name := range regionNames[:count] {
		s := &stack{data: filepath.Join(m.data, name), failpoints: m.failpoints, said: m.said, supervisor: m.supervisor}
		require.NoError(t, os.MkdirAll(filepath.Join(m.failpoints, name), 0o700))
		s.connect(t)
		t.Cleanup(func() { s.dump(t) })
		m.regions[name] = s
	}
	return m
}

// status is what a region says of another one; nil if it does not know it.
func (m *mesh) status(ctx context.Context, at, of string) (*api.RegionStatus, error) {
	list, err := m.regions[at].api.Objects(ctx, api.KindRegion, "", api.Page{})
	if err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		if o.Name == of {
			var status api.RegionStatus
			return &status, json.Unmarshal(o.Status, &status)
		}
	}
	return nil, nil
}

// waits until what a region says of another one is so.
func (m *mesh) waits(t *testing.T, what, at, of string, so func(*api.RegionStatus) bool) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s says that %s is %s", at, of, what), func(ctx context.Context) error {
		status, err := m.status(ctx, at, of)
		if err == nil && !so(status) {
			err = fmt.Errorf("%s of %s: %+v", at, of, status)
		}
		return err
	})
}

func isReached(s *api.RegionStatus) bool { return s != nil && s.Reachable }

func (m *mesh) meshed(t *testing.T) {
	t.Helper()
	for at := range m.regions {
		for of := range m.regions {
			m.waits(t, "reachable", at, of, isReached)
		}
	}
}

// shared is a project that regions share, as they see it.
type sharedProject struct {
	*mesh
	name string
}

// allow declares the project in a region with the regions that it enables.
func (p sharedProject) allow(t *testing.T, control string, regions ...string) {
	t.Helper()
	_, err := p.regions[control].api.PutProject(t.Context(), p.name, api.ProjectPut{
		MultiRegionPolicy: &api.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: control},
	}, api.Mutation{})
	require.NoError(t, err)
}

func (p sharedProject) pool(t *testing.T, region, name string, most int) {
	t.Helper()
	p.put(t, region, name, most)
}

func (p sharedProject) put(t *testing.T, region, name string, most int) {
	t.Helper()
	waitFor(t, region+" takes "+name, func(ctx context.Context) error {
		_, err := p.regions[region].api.Put(ctx, fleet.ObjectKey{Kind: fleet.KindPool, Name: name},
			api.PoolPut{Project: p.name, MaxReplicas: most}, api.Mutation{})
		return err
	})
}

// seen is what a region has of what another one created: the specs by name.
func (p sharedProject) seen(ctx context.Context, at, of string) (map[string]string, error) {
	out := map[string]string{}
	for _, kind := range []fleet.ObjectKind{fleet.KindProject, fleet.KindPool} {
		page := api.Page{Limit: 1000, Project: p.name}
		if at != of {
			page.Region = of
		}
		list, err := p.regions[at].api.Objects(ctx, kind, "", page)
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			text, err := json.Marshal([]any{o.UID, o.Generation, o.Labels, o.Spec, o.Syncing, o.CreatedAt.UTC()})
			if err != nil {
				return nil, err
			}
			out[string(kind)+"/"+o.Name] = string(text)
		}
	}
	return out, nil
}

// same waits until regions have what another one created under the project, byte for byte.
func (p sharedProject) same(t *testing.T, of string, at ...string) {
	t.Helper()
	for _, region := range at {
		waitFor(t, region+" has what "+of+" has", func(ctx context.Context) error {
			want, err := p.seen(ctx, of, of)
			if err != nil {
				return err
			}
			have, err := p.seen(ctx, region, of)
			if err == nil && !maps.Equal(want, have) {
				err = fmt.Errorf("%s has %v of %v", region, have, want)
			}
			return err
		})
	}
}
