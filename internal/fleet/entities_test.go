package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X9, X23: a subject is read as it was written, and whatever begins like one is reserved.
func TestSubjects(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string][]string{
		fleet.InstanceSubject("plant-1", "press-7"): {"instance", "plant-1", "press-7"},
		fleet.DeploymentSubject("web"):              {"deployment", "web"},
		fleet.FleetSubject("press-v7"):              {"fleet", "press-v7"},
		fleet.NodeSubject("plant-1-a"):              {"node", "plant-1-a"},
		fleet.DrainSubject("plant-1-a"):             {"drain", "plant-1-a"},
		fleet.SiteSubject("plant-1"):                {"site", "plant-1"},
		fleet.ExecutionSubject("0123"):              {"execution", "0123"},
		fleet.DeliverSubject("plant-1"):             {"deliver", "plant-1"},
		fleet.PolicySubject(fleet.ProjectKey("p1")): {"policy", "project", "p1"},
	} {
		kind, names, ok := fleet.ParseSubject(subject)
		require.True(t, ok, subject)
		require.Equal(t, want, append([]string{kind.Prefix}, names...))
		require.True(t, fleet.ReservedID(subject))
	}
	for id, reserved := range map[string]bool{
		"": false, "instance": false, "instances.a.b": false, "mine.instance.a.b": false, "any-id": false,
		"instance.a": true, "instance.a.b.c": true, "instance..b": true, "deployment.": true, "deployment.a.b": true,
		"fleet.press-v7.1.2.plant-1": true, // one site's part of a wave
	} {
		_, _, ok := fleet.ParseSubject(id)
		require.False(t, ok, id)
		require.Equal(t, reserved, fleet.ReservedID(id), id)
	}
}
