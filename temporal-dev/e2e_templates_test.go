//go:build slow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// template declares one in a region.
func (p sharedProject) template(t *testing.T, region, project, name string, base any, compositions ...string) {
	t.Helper()
	text, err := json.Marshal(base)
	require.NoError(t, err)
	_, err = p.regions[region].api.PutTemplate(t.Context(), name, api.TemplatePut{Project: project, Base: text, Compositions: compositions}, api.Mutation{})
	require.NoError(t, err)
}

// arrives waits until a region has a generation of a template of another one.
func (p sharedProject) arrives(t *testing.T, at, of, name string, generation int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s has generation %d of %s of %s", at, generation, name, of), func(ctx context.Context) error {
		list, err := p.regions[at].api.Objects(ctx, fleet.KindTemplate, "", api.Page{Region: of, Limit: 1000})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if o.Name == name && o.Generation == generation {
				return nil
			}
		}
		return errNotYet
	})
}

// usesTemplates has us deliver what a template of eu says, on nodes of us. M18, M20, M29, M35, N106
func (m *mesh) usesTemplates(t *testing.T) {
	p := sharedProject{m, "stencils"}
	p.allow(t, "eu", "eu", "us")
	us := m.regions["us"]
	large := strings.Repeat("0123456789abcdef", 6<<16) // 6 MiB
	p.template(t, "eu", "", "ground", map[string]any{"ground": large, "speed": 1})
	p.template(t, "eu", p.name, "press", map[string]any{"name": "press", "speed": 2}, "ground")
	p.arrives(t, "us", "eu", "press", 1)
	key := instanceKey("plant-1", "stencilled")
	deliver := func(t *testing.T, speed, o int) {
		t.Helper()
		op := us.put(t, key, api.InstancePut{Template: "press", Overrides: fmt.Appendf(nil, `{"o":%d}`, o)})
		requireSucceeded(t, us.ended(t, op.ID))
		want := fmt.Sprintf(`{"ground":%q,"name":"press","o":%d,"speed":%d}`, large, o, speed)
		us.held(t, key, hashOf([]byte(want)))
	}
	t.Run("a node of us holds what the template of eu says", func(t *testing.T) { deliver(t, 1, 1) })
	t.Run("a new version arrives through a killed server", func(t *testing.T) {
		p.template(t, "eu", "", "ground", map[string]any{"ground": large, "speed": 3})
		p.template(t, "eu", p.name, "press", map[string]any{"name": "press"}, "ground")
		us.kill(t, "us/"+serverName)
		p.arrives(t, "us", "eu", "press", 2)
		deliver(t, 3, 2)
	})
	t.Run("what is pinned outlives the copy, and nothing new uses it", func(t *testing.T) {
		m.link(t, "cut", "eu", "us")
		m.waits(t, "cut off", "us", "eu", isCut)
		deliver(t, 3, 3)
		m.link(t, "heal", "eu", "us")
		p.allow(t, "eu", "eu")
		p.empty(t, "eu", "us")
		m.waits(t, "said to have shared a template that is in use", "us", "eu", func(s *api.RegionStatus) bool {
			return s != nil && s.Followed != nil && len(s.Followed.Kept) == 1 && s.Followed.Kept[0].Template == "eu/press"
		})
		deliver(t, 3, 4)
		_, err := us.api.PutInstance(t.Context(), instanceKey("plant-1", "another"), api.InstancePut{Template: "press"}, api.Mutation{})
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "%v", err)
	})
	op := us.change(t, "delete", func(ctx context.Context, c api.Mutation) (api.Accepted, error) { return us.api.Delete(ctx, key, c) })
	requireSucceeded(t, us.ended(t, op.ID))
	for _, name := range []string{"press", "ground"} {
		_, err := m.regions["eu"].api.Delete(t.Context(), fleet.TemplateKey(name), api.Mutation{})
		require.NoError(t, err)
	}
	code, _ := us.send(t, http.MethodGet, "/peer/v1/templates/eu/press/generation?template=ground&generation=1", us.doc.Token, nil)
	require.Equal(t, http.StatusNotFound, code, "the API for users serves no parts")
}
