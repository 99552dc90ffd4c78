package region

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
)

// deafTo loses the first answer to an enrolment, which the region has carried out by then.
type deafTo struct {
	next http.RoundTripper
	lose sync.Once
	lost func()
}

func (d *deafTo) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/enrol") {
		return resp, err
	}
	d.lose.Do(func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		resp, err = nil, errLost
		d.lost()
	})
	return resp, err
}

// joining is one life of a node that has a join token.
func (w *keyWorld) joining(ctx context.Context, token string, through http.RoundTripper) (*node.Agent, <-chan error) {
	w.t.Helper()
	agent, err := node.Open(ctx, node.AgentOptions{
		Node: rotated, Site: "plant-1", Dir: w.dir, API: w.api.URL, Runtime: noRuntime{}, Now: time.Now, JoinToken: token,
		Log: slog.New(slog.DiscardHandler), Retry: time.Millisecond, HTTP: &http.Client{Transport: through},
	})
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	return agent, done
}

// C87: the region has enrolled the node, and the node does not hear of it.
func TestEnrolSurvives(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"a lost answer": false, "the death of the node before it knows": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKeyWorld(t)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			token, hash, err := identity.NewToken(32)
			require.NoError(t, err)
			_, err = w.store.AddJoinToken(t.Context(), keyring.JoinToken{Hash: hash[:], Site: "plant-1", Node: rotated, CreatedBy: "test"}, time.Hour)
			require.NoError(t, err)
			ctx, end := context.WithCancel(t.Context())
			deaf := &deafTo{next: transport, lost: func() {
				if dies {
					end()
				}
			}}
			agent, done := w.joining(ctx, token, deaf)
			if dies {
				require.NoError(t, <-done)
				require.NoError(t, agent.Close())
				require.Empty(t, agent.Key().Region(), "it does not know that it is enrolled")
				ctx, end = context.WithCancel(t.Context())
				agent, done = w.joining(ctx, token, transport)
			}
			select {
			case <-agent.Enrolled():
			case err := <-done:
				require.NoError(t, err)
				require.Fail(t, "the agent ended")
			}
			require.Equal(t, w.signs(), agent.Key().SigningPublic())
			require.NoError(t, w.report(agent.Key()))
			end()
			require.NoError(t, <-done)
			require.NoError(t, agent.Close())
		})
	}
}
