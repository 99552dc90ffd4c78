package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// M34, X19, X20: the command line against the region's own handlers: what cannot be handed over is refused before or by the region,
// and a forced claim of a holder that another region owns is followed to its end.
func TestHandOver(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	s.ok("apply", "-f", write(t, "policy.yaml", "kind: Project\nname: red\nspec: {multiRegionPolicy: {enabledRegions: [test, us], defaultControlRegion: test}}\n"))
	for _, args := range [][]string{{"project/red"}, {"site/a", "--to", "us"}, {"project/red", "--to", "-"}} {
		require.Equal(t, exitUsage, s.run(append([]string{"region", "handover"}, args...)...).code, args)
	}
	require.Equal(t, exitNotFound, s.run("region", "handover", "project/blue", "--to", "us").code)
	refused := s.run("region", "handover", "project/red", "--to", "us")
	require.NotEqual(t, exitOK, refused.code)
	require.Contains(t, refused.stderr, "region us is not an enabled peer of region test")
	refused = s.run("region", "handover", "project/red", "--to", "us", "--force")
	require.Contains(t, refused.stderr, "a forced hand-over is a claim by the new region itself")

	claim, err := store.ClaimStream(t.Context(), "us", stores.Run1)
	require.NoError(t, err)
	key := fleet.ProjectKey("line-a")
	_, err = store.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{{
		Key: fleet.CopyKey{Region: "us", ObjectKey: key}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 7},
		Object: &fleet.Object{
			ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "line-a", Generation: 1, CreatedBy: "test",
			Spec:    []byte(`{"multiRegionPolicy":{"enabledRegions":["us","test"],"defaultControlRegion":"us"}}`),
			Syncing: fleet.Syncing{OwningRegion: "us", Regions: []string{"test", "us"}}.JSON(),
		},
	}}})
	require.NoError(t, err)
	require.NotEqual(t, exitOK, s.run("region", "handover", "project/line-a", "--to", "test").code, "us has to ask for it")
	out, stop := s.follow("region", "handover", "project/line-a", "--to", "test", "--force")
	out.await(t, "hand-over accepted")
	for done := false; !done; {
		turn, err := store.ApplyPolicyPage(t.Context(), fleet.PolicyVisit{Kind: key.Kind, Name: key.Name, Run: stores.Run1})
		require.NoError(t, err)
		done = turn.Done
	}
	out.await(t, "hand-over project/line-a succeeded (claimed)")
	require.Equal(t, exitOK, stop())
}
