package identity

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// command is one with something in each field.
func command() fleet.RefreshDeploymentCommand {
	return fleet.RefreshDeploymentCommand{
		DeploymentID: "0123456789abcdef0123456789abcdef", Site: "plant-1", Instance: "press-7", Role: fleet.RoleActive, Epoch: 3,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: 7}, Action: fleet.ActionDeploy, Enabled: true, RunHash: "r",
			Content: fleet.Content{Kind: fleet.ContentJSON, Hash: "h", Size: 12},
		},
		DeployedBy: "token:1", Timestamp: now.UTC(), CentralFetchBaseURL: "http://region:7460", FetchToken: "sealed", IdleTimeout: time.Minute,
	}
}

// What is signed is what nodes of other versions verify, so it stays: another form is another
// version in the first line.
func TestCommandBytes(t *testing.T) {
	t.Parallel()
	s := fleet.Signature{Node: "plant-1-a", Expires: now}
	for name, cmd := range map[string]fleet.Command{
		"deployment": command(),
		"batch": fleet.BatchCommand{
			BatchID: "b", Site: "plant-1", Role: fleet.RoleStandby, Epoch: 3, Count: 1000, Digest: "d", Stage: true, DeployedBy: "token:1",
			Timestamp: now.UTC(), CentralFetchBaseURL: "http://region:7460", FetchToken: "sealed",
		},
		"reconcile": fleet.ReconcileCommand{ID: "1", Site: "plant-1", Role: fleet.RoleActive, Epoch: 3, BaseURL: "http://region:7460", Token: "sealed"},
		"hand-over": fleet.HandOverCommand{Site: "plant-1", To: "plant-1-b", Epoch: 3, DeadlineSeconds: 5},
		"take-over": fleet.TakeOverCommand{Site: "plant-1", Forced: true, DeadlineSeconds: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(filepath.Join("testdata", "command", name+".txt"))
			require.NoError(t, err)
			require.Equal(t, string(want), string(commandBytes(cmd, s)))
		})
	}
}

// X21: a command that differs from the signed one in anything that the node acts by is not signed.
func TestSignCommand(t *testing.T) {
	t.Parallel()
	public, region, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	other, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	cmd := command()
	s := SignCommand(region, "plant-1-a", cmd, now)
	require.True(t, VerifyCommand([]ed25519.PublicKey{other, public}, cmd, s))
	require.False(t, VerifyCommand([]ed25519.PublicKey{other}, cmd, s))
	require.False(t, VerifyCommand(nil, cmd, s))
	require.False(t, VerifyCommand([]ed25519.PublicKey{public}, cmd, fleet.Signature{}))
	for name, change := range map[string]func(*fleet.RefreshDeploymentCommand, *fleet.Signature){
		"node":     func(_ *fleet.RefreshDeploymentCommand, s *fleet.Signature) { s.Node = "plant-1-b" },
		"expiry":   func(_ *fleet.RefreshDeploymentCommand, s *fleet.Signature) { s.Expires = s.Expires.Add(1) },
		"id":       func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.DeploymentID = "x" },
		"site":     func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Site = "plant-2" },
		"subject":  func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Instance = "press-8" },
		"role":     func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Role = fleet.RoleStandby },
		"epoch":    func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Epoch++ },
		"era":      func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Era++ },
		"revision": func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Version.Revision++ },
		"action":   func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Action = fleet.ActionDelete },
		"hash":     func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Content.Hash = "i" },
		"size":     func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Content.Size++ },
		"kind": func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) {
			c.Revision.Content.Kind = fleet.ContentArtifact
		},
		"run hash":   func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.RunHash = "s" },
		"enabled":    func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Revision.Enabled = false },
		"who":        func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.DeployedBy = "token:2" },
		"when":       func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Timestamp = c.Timestamp.Add(1) },
		"URL":        func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.CentralFetchBaseURL = "http://foreign" },
		"token":      func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.FetchToken = "other" },
		"two fields": func(c *fleet.RefreshDeploymentCommand, _ *fleet.Signature) { c.Site, c.Instance = "plant-1p", "ress-7" },
	} {
		changed, with := cmd, s
		change(&changed, &with)
		require.False(t, VerifyCommand([]ed25519.PublicKey{public}, changed, with), name)
	}
	patient := cmd
	patient.IdleTimeout = time.Hour
	require.True(t, VerifyCommand([]ed25519.PublicKey{public}, patient, s), "the workflow says how long a node tries")
}

// The region's public keys stay with the node's key through a change of it.
func TestCommandKeys(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "node.key")
	k := newKey(t).Enrolled("eu-1").Commanded([][]byte{public, {1}})
	require.Equal(t, []ed25519.PublicKey{public}, k.CommandKeys(), "what is no key is left out")
	require.NoError(t, k.Save(path))
	got, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, k, got)
	next, err := k.Renewed()
	require.NoError(t, err)
	require.True(t, next.Confirmed().SameCommands(k))
	require.False(t, k.SameCommands(newKey(t)))
	require.True(t, newKey(t).CommandedAs(k).SameCommands(k))
}
