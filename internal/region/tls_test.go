package region

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// C87: the link of a node over TLS with certificates on both sides, by one and by several
// addresses; without the authority, or without a certificate, there is none.
func TestNodeLinkTLS(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	n := w.start(&keyHooks{})
	w.ready()
	key := n.Key()
	ca, other := testkit.NewAuthority(t), testkit.NewAuthority(t)
	files := certs.ServerFiles{ClientCA: ca.File}
	files.Cert, files.Key = ca.Issue(filepath.Join(t.TempDir(), "server"))
	served, err := certs.Server(files, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	address, _ := serveLink(t, w.store, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(served)))
	own := certs.ClientFiles{CA: ca.File}
	own.Cert, own.Key = ca.Issue(filepath.Join(t.TempDir(), "client"))
	stranger := own
	stranger.CA = other.File

	reaches := func(link string, files certs.ClientFiles, wait time.Duration) bool {
		security, err := certs.For("https://region", files)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		at := make(chan struct{})
		close(at)
		cfg := NodeConfig{Node: string(rotated), Link: link, security: security}
		l := &nodeLink{cfg: cfg, agent: &linked{key, at}, inFlight: func() int { return 0 }, gate: idle.New(time.Now, func() bool { return false }), log: slog.New(slog.DiscardHandler)}
		done := make(chan struct{})
		go func() { defer close(done); _ = l.run(ctx) }()
		defer func() { cancel(); <-done }()
		for ctx.Err() == nil {
			list, err := w.store.ListNodes(context.Background(), nodes.NodeFilter{Name: rotated}, "", 1)
			require.NoError(t, err)
			if c := list[0].Connection; c != nil && c.State == fleet.ConnectionActive {
				return true
			}
			_ = pause.For(ctx, 10*time.Millisecond)
		}
		return false
	}
	require.True(t, reaches(address, own, time.Minute))
	w.until("it went", func() bool { return w.node().Connection.ID == "" })
	require.True(t, reaches(address+","+address, own, time.Minute))
	w.until("it went", func() bool { return w.node().Connection.ID == "" })
	require.False(t, reaches(address, stranger, 2*time.Second))
	require.False(t, reaches(address, certs.ClientFiles{CA: ca.File}, 2*time.Second))
}
