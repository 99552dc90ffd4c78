//go:build slow

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const handedLine = "handed"

var (
	handedKey = fleet.ProjectKey(handedLine)
	handedOne = fleet.TemplateKey("handed-press")
)

// owned waits until a region knows who owns an object, and that its labels say so.
func (m *mesh) owned(t *testing.T, key fleet.ObjectKey, owner, label string, at ...string) {
	t.Helper()
	for _, region := range at {
		waitFor(t, fmt.Sprintf("%s knows that %s owns %s", region, owner, key), func(ctx context.Context) error {
			o, _, err := m.regions[region].api.Object(ctx, key)
			if err != nil {
				return err
			}
			var s fleet.Syncing
			if err := json.Unmarshal(o.Syncing, &s); err != nil {
				return err
			}
			if s.OwningRegion != owner || label != "" && o.Labels["v"] != label {
				return fmt.Errorf("%s has %s, labels %v", region, o.Syncing, o.Labels)
			}
			return nil
		})
	}
}

func (m *mesh) putHanded(ctx context.Context, at, label string) error {
	_, err := m.regions[at].api.PutTemplate(ctx, handedOne.Name, api.TemplatePut{
		Project: handedLine, Labels: map[string]string{"v": label}, Base: json.RawMessage(`{"v":` + label + `}`),
	}, api.Mutation{})
	return err
}

// says waits until a region has what another one created with a label; "" is that it has nothing.
func (m *mesh) says(t *testing.T, birth, label string, at ...string) {
	t.Helper()
	for _, region := range at {
		waitFor(t, fmt.Sprintf("%s has %s of %s with label %q", region, handedOne, birth, label), func(ctx context.Context) error {
			o, err := m.regions[region].api.Copy(ctx, birth, handedOne)
			if label == "" && fleet.KindOf(err) == fleet.NotFound {
				return nil
			}
			if err == nil && o.Labels["v"] != label {
				err = fmt.Errorf("%w: %v", errNotYet, o.Labels)
			}
			return err
		})
	}
}

// twoOfAName: us owns the template that eu created, and declares one of the same name; each is written by its region, also
// from eu, which continues in the user's context for us (M39, M46).
func (m *mesh) twoOfAName(t *testing.T, eu, us cli) {
	t.Helper()
	manifest := func(label, region string) string {
		path := filepath.Join(t.TempDir(), "press.yaml")
		text := fmt.Sprintf("kind: Template\nname: %s\nproject: %s\nlabels: {v: %q}\nspec: {base: {v: %s}}\n%s", handedOne.Name, handedLine, label, label, region)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	us.call(t, cliOK, "apply", "--region", "us", "-f", manifest("10", ""))
	us.call(t, cliOK, "apply", "-f", manifest("11", "region: eu\n"))
	m.says(t, "us", "10", "eu", "us", "ap")
	m.says(t, "eu", "11", "eu", "us", "ap")

	refused := api.ProblemOf(m.putHanded(t.Context(), "eu", "12"))
	require.Equal(t, []string{"us", "eu", m.regions["us"].doc.API}, []string{refused.Owner, refused.Region, refused.OwnerAddress})
	_, problem := eu.call(t, cliConflict, "apply", "-f", manifest("12", ""))
	require.Contains(t, problem, m.regions["us"].doc.API)
	require.Contains(t, problem, "holdfast context set us --address URL")
	eu.call(t, cliOK, "context", "set", "friends", "--address", m.regions["us"].doc.API, "--token", m.regions["us"].doc.Token)
	_, said := eu.call(t, cliOK, "apply", "-f", manifest("12", ""))
	require.Equal(t, handedOne.String()+" is owned by us; continuing with context friends\n", said)
	m.says(t, "eu", "12", "eu", "us", "ap")
	m.says(t, "us", "10", "eu", "us", "ap")

	_, problem = us.call(t, cliMissing, "delete", "template", handedOne.Name, "--region", "nowhere")
	require.Contains(t, problem, "use us, ap or eu")
	eu.call(t, cliOK, "delete", "template", handedOne.Name, "--region", "us")
	m.says(t, "us", "", "eu", "us", "ap")
	m.says(t, "eu", "12", "eu", "us", "ap")
}

// handsOver: a project and its template change their owner, whatever is killed meanwhile, and change back (M34).
func (m *mesh) handsOver(t *testing.T) {
	_, err := m.regions["eu"].api.PutProject(t.Context(), handedLine, api.ProjectPut{MultiRegionPolicy: &api.MultiRegionPolicy{
		EnabledRegions: []string{"eu", "us", "ap"}, DefaultControlRegion: "eu",
	}}, api.Mutation{})
	require.NoError(t, err)
	require.NoError(t, m.putHanded(t.Context(), "eu", "1"))
	m.owned(t, handedOne, "eu", "1", "eu", "us", "ap")

	m.link(t, "cut", "eu", "us")
	eu, us := newCLI(t, m.regions["eu"]), newCLI(t, m.regions["us"])
	eu.call(t, cliOK, "region", "handover", "project/"+handedLine, "--to", "us", "--wait=false")
	require.Equal(t, fleet.NotOwner, fleet.KindOf(m.putHanded(t.Context(), "eu", "2")))
	m.regions["eu"].kill(t, "eu/"+serverName)
	m.link(t, "heal", "eu", "us")
	m.regions["us"].kill(t, "us/"+serverName)
	waitFor(t, "us writes what it owns", func(ctx context.Context) error { return m.putHanded(ctx, "us", "3") })
	m.owned(t, handedKey, "us", "", "eu", "us", "ap")
	m.owned(t, handedOne, "us", "3", "eu", "us", "ap")
	waitFor(t, "the operation ends", func(ctx context.Context) error {
		all, err := m.regions["eu"].api.Operations(ctx, api.OperationQuery{})
		if err != nil {
			return err
		}
		for _, op := range all.Items {
			if op.Kind == "hand-over" && op.State == fleet.OperationSucceeded {
				return nil
			}
		}
		return errNotYet
	})
	require.Equal(t, fleet.NotOwner, fleet.KindOf(m.putHanded(t.Context(), "eu", "4")))
	m.twoOfAName(t, eu, us)

	us.call(t, cliOK, "region", "handover", "project/"+handedLine, "--to", "eu")
	waitFor(t, "eu writes what it owns", func(ctx context.Context) error { return m.putHanded(ctx, "eu", "5") })
	m.owned(t, handedOne, "eu", "5", "eu", "us", "ap")
	for _, key := range []fleet.ObjectKey{handedOne, handedKey} {
		require.NoError(t, insist(t, "delete "+key.String(), func(ctx context.Context) error {
			_, err := m.regions["eu"].api.Delete(ctx, key, api.Mutation{})
			return err
		}))
	}
	for _, region := range []string{"eu", "us", "ap"} {
		waitFor(t, "it is gone in "+region, func(ctx context.Context) error {
			for _, key := range []fleet.ObjectKey{handedOne, handedKey} {
				if _, _, err := m.regions[region].api.Object(ctx, key); fleet.KindOf(err) != fleet.NotFound {
					return fmt.Errorf("%s is still there, or cannot be read: %w", key, errors.Join(errNotYet, err))
				}
			}
			return nil
		})
	}
}
