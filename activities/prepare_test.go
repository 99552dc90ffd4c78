package activities

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// openStore has a delivery open that its active waits for, and keeps the steps it is given.
type openStore struct{ steps []fleet.Step }

func (s *openStore) Walk(_ context.Context, _ fleet.Subject, first fleet.Step, next func(fleet.InstanceSeen, int) (fleet.Step, bool)) (fleet.Walked, error) {
	seen := fleet.InstanceSeen{
		Holder: "plant-1-a", Epoch: 3, Asked: 1, Open: &fleet.DeliverySeen{
			ID: "d1", Node: "plant-1-a", Epoch: 3, Deadline: time.Unix(60, 0),
			Targets: []fleet.TargetSeen{{Node: "plant-1-a", Role: fleet.RoleActive, State: fleet.TargetWaiting}},
		},
	}
	step, _ := next(seen, 1)
	s.steps = []fleet.Step{first, step}
	return fleet.Walked{Seen: seen, Steps: s.steps, Prepared: &fleet.Prepared{
		Node:       "plant-1-a",
		SealingKey: []byte("key of a"), Command: fleet.RefreshDeploymentCommand{
			DeploymentID: "d1", Site: "plant-1", Instance: "press-7", Role: fleet.RoleActive, Epoch: 3,
			Revision: fleet.Revision{
				Version: fleet.Version{Era: 1, Revision: 7}, Action: fleet.ActionDeploy, Enabled: true,
				Content: fleet.Content{Kind: fleet.ContentJSON, Hash: "h", Size: 40 << 20},
			},
			DeployedBy: "somebody", Timestamp: time.Unix(1, 0).UTC(), IdleTimeout: time.Minute,
		},
	}}, nil
}

type oneToken struct{}

func (oneToken) New() (string, []byte, error) { return "the-token", []byte("its-hash"), nil }
func (oneToken) Seal(key []byte, token string) (string, error) {
	return "sealed(" + string(key) + ", " + string(rune(len(token)+'0')) + " bytes)", nil
}

func (oneToken) Sign(_ context.Context, node fleet.NodeName, cmd fleet.Command) (fleet.Signature, error) {
	return fleet.Signature{Node: node, Value: []byte(strings.Join(cmd.Terms(), " "))}, nil
}

// N4, N19, N34, N35, N69, N77, N104, X9: the notify carries ids, numbers, who, when, where to
// fetch and a sealed token, whatever the size of the config; the store sees only a hash.
func TestVisitPrepares(t *testing.T) {
	t.Parallel()
	store := &openStore{}
	nodes := &wokenNodes{}
	i := &Instances{Store: store, Tokens: oneToken{}, Signer: oneToken{}, Nodes: nodes, FetchBaseURL: "http://region:7460"}
	out, err := i.Visit(t.Context(), Visit{})
	require.Equal(t, []fleet.NodeName{"plant-1-a"}, nodes.all, "it may idle")
	require.NoError(t, err)
	require.Equal(t, []string{"observe", "prepare (notify_active)"}, out.Steps)
	prepare := store.steps[1].Prepare
	require.Equal(t, []byte("its-hash"), prepare.TokenHash)
	cmd := out.Command
	require.Equal(t, "http://region:7460", cmd.CentralFetchBaseURL)
	require.Contains(t, cmd.FetchToken, "sealed(key of a")
	require.Equal(t, fleet.NodeName("plant-1-a"), cmd.Signed.Node)
	require.Contains(t, string(cmd.Signed.Value), cmd.FetchToken, "it is signed as it is sent")

	body, err := json.Marshal(cmd)
	require.NoError(t, err)
	require.Less(t, len(body), 1<<10)
	require.NotContains(t, string(body), "the-token")
	var members map[string]any
	require.NoError(t, json.Unmarshal(body, &members))
	require.Subset(t, keys(members), []string{
		"deploymentId", "site", "instance", "revision", "deployedBy", "timestamp", "centralFetchBaseUrl", "fetchToken", "epoch", "role",
	})

	kept, err := json.Marshal(prepare)
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
