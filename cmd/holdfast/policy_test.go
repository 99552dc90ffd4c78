package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const policyManifest = `kind: Organization
name: acme
---
kind: Project
name: red
spec:
  organization: acme
  multiRegionPolicy:
    enabledRegions: [test, us]
    defaultControlRegion: test
    criteriaForDisabledSync:
      - {resourceTypeName: Site, destRegion: us}
---
kind: Service
name: web
project: red
---
kind: Pool
name: fast
project: red
service: web
`

// M41, X19, X20: the command line against the region's own handlers: holders and their objects as YAML, and a policy
// that is applied on request.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	s.ok("apply", "-f", write(t, "policy.yaml", policyManifest))
	described := s.ok("describe", "pool", "fast").stdout
	for _, want := range []string{"Service:        web\n", "Regions:        test, us; owner test\n"} {
		require.Contains(t, described, want)
	}
	require.Contains(t, s.ok("get", "organizations").stdout, "acme")
	require.Equal(t, "service/web\n", s.ok("get", "services", "--project", "red", "-o", "name").stdout)

	out, stop := s.follow("region", "apply-policy", "project/red")
	out.await(t, "waiting for workflow policy.project.red")
	require.Contains(t, s.ok("operations", "list").stdout, "project/red")
	turn, err := store.ApplyPolicyPage(t.Context(), fleet.PolicyVisit{Kind: fleet.KindProject, Name: "red", Run: stores.Run1})
	require.NoError(t, err)
	require.True(t, turn.Done)
	out.await(t, "apply-policy project/red succeeded (applied)")
	require.Equal(t, exitOK, stop())

	for holder, code := range map[string]int{"site/a": exitUsage, "project/blue": exitNotFound} {
		require.Equal(t, code, s.run("region", "apply-policy", holder).code, holder)
	}
	for manifest, want := range map[string]string{
		"kind: Organization\nname: acme\nproject: red\n":             "objects of kind Organization belong to no project",
		"kind: Service\nname: web\nservice: web\n":                   "objects of kind Service belong to no service",
		"kind: Pool\nname: fast\nspec: {service: web}\n":             "move project, service and labels out of spec",
		"kind: Project\nname: default\nspec: {organization: acme}\n": "cannot have an organization",
		"kind: Project\nname: red\nspec: {multiRegionPolicy: {enabledRegions: [us], defaultControlRegion: test}, organization: acme}\n": `control region "test" is not enabled; use us`,
		"kind: Project\nname: red\nspec: {labels: {a: b}}\n":                                                                            "move project, service and labels out of spec",
		"kind: Service\nname: web\nproject: red\nspec: {multiRegionPolicy: {enabledRegions: [us, us], defaultControlRegion: us}}\n":     "region us is given twice",
	} {
		got := s.run("apply", "-f", write(t, "bad.yaml", manifest))
		require.NotEqual(t, exitOK, got.code, manifest)
		require.Contains(t, got.stderr, want)
	}
}
