package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Every kind that can be declared can be applied, listed and described.
func TestKindsAreKnown(t *testing.T) {
	t.Parallel()
	c := &cli{kinds: declaredKinds(fleet.DeclaredKinds())}
	for _, k := range c.kinds {
		require.NotNil(t, k.check, k.Kind)
		require.Equal(t, k.cells == nil, k.header == nil, k.Kind)
		shown, err := c.kindOf(k.Plural)
		require.NoError(t, err)
		require.Equal(t, k.Kind, shown.object)
	}
}

// N107: a plain kind that is registered is applied, planned, listed, described, completed and deleted without another edit.
func TestRegisteredKind(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := newShell(t, r)
	manifest := write(t, "gadgets.yaml", "kind: Gadget\nname: g1\nproject: press\nlabels: {line: a}\nspec: {site: plant-1, size: 2}\n")
	unknown := s.run("apply", "-f", manifest)
	require.Equal(t, exitUsage, s.run("get", "gadgets").code)
	require.Contains(t, unknown.stderr, `unknown kind "Gadget"; use Organization, Project, Service, Site, Pool, Template, Instance, Deployment, Region or Fleet`)
	require.Empty(t, r.changes())

	s.registered = fleet.KindTable{{Kind: "gadget", Title: "Gadget", Plural: "gadgets"}}
	require.Contains(t, s.ok("apply", "-f", manifest).stdout, "gadget/g1 applied, generation 1")
	require.Equal(t, []string{"PUT gadgets/g1"}, r.changes())
	require.Equal(t, `{"project":"press","labels":{"line":"a"},"site":"plant-1","size":2}`, r.last().body)
	s.ok("apply", "-f", manifest, "--deploy=false", "--reason", "it starts no work")
	require.Equal(t, r.arrived()[0].body, r.last().body)
	require.Empty(t, r.last().query)
	require.Contains(t, s.ok("get", "gadgets").stdout, "g1")
	require.Contains(t, s.ok("get", "gadget", "-o", "json").stdout, `"plant-1"`)
	require.Contains(t, s.ok("describe", "gadget", "g1").stdout, "plant-1")
	require.Contains(t, s.ok("__complete", "delete", "g").stdout, "gadgets")
	require.Contains(t, s.ok("__complete", "get", "gadgets", "").stdout, "g1")
	s.ok("delete", "gadget", "g1")
	require.Equal(t, []string{"PUT gadgets/g1", "PUT gadgets/g1", "DELETE gadgets/g1"}, r.changes())

	bad := s.run("apply", "-f", write(t, "bad.yaml", "kind: Gadget\nname: g1\nspec: {project: press}\n"))
	require.Contains(t, bad.stderr, "move project, service and labels out of spec")
	require.Contains(t, s.run("apply", "-f", write(t, "none.yaml", "kind: Widget\nname: g1\n")).stderr, "Fleet or Gadget")
}
