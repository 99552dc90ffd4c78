package activities

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// prepareStore answers Prepare and keeps what it was given; nothing else is called.
type prepareStore struct {
	subjectStore
	got fleet.Prepare
}

func (s *prepareStore) Prepare(_ context.Context, p fleet.Prepare) (fleet.Prepared, error) {
	s.got = p
	return fleet.Prepared{SealingKey: []byte("key of b"), Command: fleet.RefreshDeploymentCommand{
		DeploymentID: "d1", Site: "plant-1", Instance: "press-7", Role: fleet.RoleStandby, Epoch: 3,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: 7}, Action: fleet.ActionDeploy, Enabled: true,
			Content: fleet.Content{Kind: fleet.ContentJSON, Hash: "h", Size: 40 << 20},
		},
		DeployedBy: "somebody", Timestamp: time.Unix(1, 0).UTC(), IdleTimeout: time.Minute,
	}}, nil
}

type oneToken struct{}

func (oneToken) New() (string, []byte, error) { return "the-token", []byte("its-hash"), nil }
func (oneToken) Seal(key []byte, token string) (string, error) {
	return "sealed(" + string(key) + ", " + string(rune(len(token)+'0')) + " bytes)", nil
}

// N4, N19, N34, N35, N69, N104, X9: the notify carries ids, numbers, who, when, where to
// fetch and a sealed token, whatever the size of the config; the store sees only a hash.
func TestPrepare(t *testing.T) {
	t.Parallel()
	store := &prepareStore{}
	i := &Instances{Store: store, Tokens: oneToken{}, FetchBaseURL: "http://region:7460"}
	cmd, err := i.Prepare(t.Context(), fleet.Prepare{Delivery: "d1", Node: "plant-1-b"})
	require.NoError(t, err)
	require.Equal(t, []byte("its-hash"), store.got.TokenHash)
	require.Equal(t, "http://region:7460", cmd.CentralFetchBaseURL)
	require.Contains(t, cmd.FetchToken, "sealed(key of b")

	body, err := json.Marshal(cmd)
	require.NoError(t, err)
	require.Less(t, len(body), 1<<10)
	require.NotContains(t, string(body), "the-token")
	var members map[string]any
	require.NoError(t, json.Unmarshal(body, &members))
	require.Subset(t, keys(members), []string{
		"deploymentId", "site", "instance", "revision", "deployedBy", "timestamp", "centralFetchBaseUrl", "fetchToken", "epoch", "role",
	})

	kept, err := json.Marshal(store.got)
	require.NoError(t, err)
	require.NotContains(t, string(kept), "its-hash", "the hash is no part of what a workflow records")
}

func keys(m map[string]any) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}
