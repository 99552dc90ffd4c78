package node

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// tasked is a node whose region signs, and a foreign server that nobody may call.
type tasked struct {
	*expecting
	*Tasks
	signer  ed25519.PrivateKey
	now     time.Time
	foreign *httptest.Server
}

func task(t *testing.T) *tasked {
	t.Helper()
	a := &tasked{expecting: expect(t), now: time.Unix(1_800_000_000, 0)}
	a.foreign = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the foreign server was called: %s", r.URL.Path)
	}))
	t.Cleanup(a.foreign.Close)
	a.signsBy(t)
	a.expecting.agent.opt.API, a.expecting.agent.opt.Dir, a.expecting.agent.opt.Log = a.site.URL, a.dir, slog.New(slog.DiscardHandler)
	a.expecting.agent.opt.Now = func() time.Time { return a.now }
	a.Tasks = &Tasks{agent: a.expecting.agent, used: map[string]time.Time{}}
	return a
}

// signsBy gives the region a new key, which its answers tell.
func (a *tasked) signsBy(t *testing.T) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	a.expecting.mu.Lock()
	defer a.expecting.mu.Unlock()
	a.signer = private
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != "reports" {
			return false
		}
		_ = json.NewEncoder(w).Encode(Placement{CommandKeys: [][]byte{public}})
		return true
	}
}

func (a *tasked) sign(cmd fleet.Command) fleet.Signature {
	return identity.SignCommand(a.signer, "plant-1-a", cmd, a.now.Add(time.Minute))
}

func (a *tasked) signed(n int64, config string, changes ...with) fleet.RefreshDeploymentCommand {
	cmd := a.cmd(n, config, changes...)
	cmd.Signed = a.sign(cmd)
	return cmd
}

func (a *tasked) refuses(t *testing.T, reason string, err error) {
	t.Helper()
	require.ErrorContains(t, err, reason)
	require.Equal(t, fleet.Communication, fleet.KindOf(err), "what the region did ask for is asked again")
	rows := a.expecting.agent.refusals.Take()
	require.Len(t, rows, 1)
	require.Equal(t, []string{audit.DoorNode, audit.FromNobody, reason}, []string{rows[0].Door, rows[0].Identity, rows[0].Reason})
	require.True(t, audit.NodeSays(rows[0]))
	require.Equal(t, reason, audit.KnownReason(rows[0].Reason))
}

// elsewhere is the foreign server by the name of another host than the one of --api.
func (a *tasked) elsewhere() string {
	return strings.Replace(a.foreign.URL, "127.0.0.1", "localhost", 1)
}

// X13, X21: a task is acted on once, only with the region's signature for this node, and nothing is
// fetched but from the node's own --api.
func TestTasks(t *testing.T) {
	t.Parallel()
	apply := func(a *tasked, cmd fleet.RefreshDeploymentCommand) error {
		_, err := a.Tasks.Apply(t.Context(), cmd, nil)
		return err
	}
	t.Run("a signed command is carried out, from the node's own region", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		cmd := a.cmd(1, "{}")
		cmd.CentralFetchBaseURL = a.elsewhere()
		cmd.Signed = a.sign(cmd)
		require.NoError(t, apply(a, cmd))
		a.is(1, "{}", 1, 1)
		a.now = a.now.Add(time.Second)
		a.refuses(t, audit.Replayed, apply(a, cmd))
		require.EqualValues(t, 1, a.counted.Snapshot()["commands_refused"])
	})
	for reason, spoil := range map[string]func(a *tasked, c *fleet.RefreshDeploymentCommand){
		audit.Unsigned:     func(_ *tasked, c *fleet.RefreshDeploymentCommand) { c.Signed = fleet.Signature{} },
		audit.BadSignature: func(_ *tasked, c *fleet.RefreshDeploymentCommand) { c.Revision.RunHash = c.Revision.Content.Hash },
		audit.OtherNode:    func(_ *tasked, c *fleet.RefreshDeploymentCommand) { c.Signed.Node = "plant-1-b" },
		audit.Expired:      func(a *tasked, _ *fleet.RefreshDeploymentCommand) { a.now = a.now.Add(time.Minute) },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			a := task(t)
			cmd := a.signed(1, "{}", under(fleet.RoleActive, 7))
			spoil(a, &cmd)
			a.refuses(t, reason, apply(a, cmd))
			a.is(0, "", 0, 0)
			meta, err := a.store.Meta(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, meta.Epoch, "its epoch was not learnt")
		})
	}
	t.Run("a comparison, a batch and what is asked of the lease are commands too", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		_, err := a.Tasks.Reconcile(t.Context(), fleet.ReconcileCommand{ID: "1", Site: "plant-1", Role: fleet.RoleActive, Epoch: 9, BaseURL: a.elsewhere()})
		a.refuses(t, audit.Unsigned, err)
		_, err = a.ApplyBatch(t.Context(), fleet.BatchCommand{Site: "plant-1", Role: fleet.RoleActive, Epoch: 9, CentralFetchBaseURL: a.elsewhere()}, nil)
		a.refuses(t, audit.Unsigned, err)
		_, err = a.HandOver(t.Context(), fleet.HandOverCommand{Site: "plant-1"})
		a.refuses(t, audit.Unsigned, err)
		_, err = a.TakeOver(t.Context(), fleet.TakeOverCommand{Site: "plant-1", Forced: true, Signed: a.sign(fleet.TakeOverCommand{Site: "plant-1"})})
		a.refuses(t, audit.BadSignature, err)
	})
	t.Run("a hand-over and a take-over stay used after a restart", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		for _, cmd := range []fleet.Command{
			fleet.HandOverCommand{Site: "plant-1", To: "plant-1-b", Epoch: 7}, fleet.TakeOverCommand{Site: "plant-1"},
		} {
			s := a.sign(cmd)
			require.NoError(t, a.admit(t.Context(), cmd, s, "the first"))
			a.refuses(t, audit.Replayed, a.admit(t.Context(), cmd, s, "the same agent"))
			a.now = a.now.Add(time.Second)
			restarted := &Tasks{agent: a.expecting.agent, used: map[string]time.Time{}}
			a.refuses(t, audit.Replayed, restarted.admit(t.Context(), cmd, s, "the next agent"))
		}
		a.now = a.now.Add(time.Minute)
		again := fleet.TakeOverCommand{Site: "plant-1"}
		require.NoError(t, a.admit(t.Context(), again, a.sign(again), "another signature"))
	})
	t.Run("a key that the node does not know is learnt, and kept", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		require.NoError(t, apply(a, a.signed(1, "{}")))
		old := a.signer
		a.signsBy(t)
		a.now = a.now.Add(time.Minute)
		require.NoError(t, apply(a, a.signed(2, "[]")))
		a.is(2, "[]", 2, 2)
		saved, err := identity.Load(filepath.Join(a.dir, "node.key"))
		require.NoError(t, err)
		require.Equal(t, []ed25519.PublicKey{a.signer.Public().(ed25519.PublicKey)}, saved.CommandKeys())
		cmd := a.cmd(3, "{}")
		cmd.Signed = identity.SignCommand(old, "plant-1-a", cmd, a.now.Add(time.Minute))
		a.refuses(t, audit.BadSignature, apply(a, cmd))
	})
	t.Run("made-up commands have the region asked once a second", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		for n := range int64(5) {
			cmd := a.signed(n+1, "{}")
			cmd.Epoch++
			a.refuses(t, audit.BadSignature, apply(a, cmd))
		}
		a.expecting.mu.Lock()
		defer a.expecting.mu.Unlock()
		require.Len(t, a.expecting.asked, 1)
	})
	t.Run("used signatures are forgotten when they have expired", func(t *testing.T) {
		t.Parallel()
		a := task(t)
		for n := range int64(3) {
			require.NoError(t, apply(a, a.signed(n+1, "{}")))
			a.now = a.now.Add(2 * tidyEvery)
		}
		require.Len(t, a.used, 1)
	})
}
