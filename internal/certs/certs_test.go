package certs_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a server's files and its clock.
type bench struct {
	t     *testing.T
	ca    *testkit.Authority
	files certs.ServerFiles
	at    time.Time
	log   bytes.Buffer
	conf  *tls.Config
}

func setup(t *testing.T, mutual bool) *bench {
	t.Helper()
	b := &bench{t: t, ca: testkit.NewAuthority(t), at: time.Now()}
	b.files.Cert, b.files.Key = b.ca.Issue(filepath.Join(t.TempDir(), "server"))
	if mutual {
		b.files.ClientCA = b.ca.File
	}
	var err error
	b.conf, err = certs.Server(b.files, func() time.Time { return b.at }, slog.New(slog.NewTextHandler(&b.log, nil)))
	require.NoError(t, err)
	return b
}

// meet shakes hands, and gives the server's certificate or the caller's error.
func (b *bench) meet(files certs.ClientFiles) ([]byte, error) {
	b.t.Helper()
	conf, err := certs.Client(files)
	require.NoError(b.t, err)
	conf.ServerName = "localhost"
	l, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	defer func() { _ = l.Close() }()
	served := make(chan struct{})
	go func() {
		defer close(served)
		there, err := l.Accept()
		if err != nil {
			return
		}
		s := tls.Server(there, b.conf)
		if s.Handshake() == nil {
			_, _ = s.Write([]byte("x"))
		}
		_ = s.Close()
	}()
	here, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b.t, err)
	defer func() { _ = here.Close(); <-served }()
	c := tls.Client(here, conf)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0].Raw, nil
}

// later lets the server look at its files again.
func (b *bench) later() { b.at = b.at.Add(2 * time.Second) }

// C87: certificates are renewed without a restart, and a broken renewal breaks nothing.
func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("takes files that changed, and keeps the good ones over broken ones", func(t *testing.T) {
		t.Parallel()
		b := setup(t, false)
		trust := certs.ClientFiles{CA: b.ca.File}
		first, err := b.meet(trust)
		require.NoError(t, err)

		require.NoError(t, os.WriteFile(b.files.Cert, []byte("nonsense"), 0o600))
		b.later()
		same, err := b.meet(trust)
		require.NoError(t, err)
		require.Equal(t, first, same)
		require.Contains(t, b.log.String(), "load the new TLS files")

		require.NoError(t, os.Remove(b.files.Key))
		b.later()
		same, err = b.meet(trust)
		require.NoError(t, err)
		require.Equal(t, first, same)

		b.ca.Issue(b.files.Cert[:len(b.files.Cert)-len(".pem")])
		b.later()
		renewed, err := b.meet(trust)
		require.NoError(t, err)
		require.NotEqual(t, first, renewed)
		require.Contains(t, b.log.String(), "loaded the new TLS files")
	})
	t.Run("wants a certificate by its authority, and takes a new authority", func(t *testing.T) {
		t.Parallel()
		b := setup(t, true)
		other := testkit.NewAuthority(t)
		show := func(a *testkit.Authority) certs.ClientFiles {
			f := certs.ClientFiles{CA: b.ca.File}
			f.Cert, f.Key = a.Issue(filepath.Join(t.TempDir(), "client"))
			return f
		}
		_, err := b.meet(show(b.ca))
		require.NoError(t, err)
		for _, f := range []certs.ClientFiles{{CA: b.ca.File}, show(other)} {
			_, err = b.meet(f)
			require.Contains(t, hint.Region(err), "--client-cert", "%v", err)
		}
		raw, err := os.ReadFile(other.File)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.files.ClientCA, raw, 0o600))
		b.later()
		f := show(other)
		f.CA = filepath.Join(t.TempDir(), "old") // the server's certificate is still by the first
		require.NoError(t, os.WriteFile(f.CA, b.ca.PEM(), 0o600))
		_, err = b.meet(f)
		require.NoError(t, err)
	})
	t.Run("starts with good files only", func(t *testing.T) {
		t.Parallel()
		b := setup(t, false)
		for _, f := range []certs.ServerFiles{
			{Pair: certs.Pair{Cert: b.files.Cert}},
			{Pair: certs.Pair{Cert: b.files.Key, Key: b.files.Cert}},
			{ClientCA: b.ca.File},
			{Pair: b.files.Pair, ClientCA: b.files.Key},
			{Pair: b.files.Pair, ClientCA: "missing"},
		} {
			_, err := certs.Server(f, time.Now, slog.New(slog.DiscardHandler))
			require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%+v", f)
		}
		none, err := certs.Server(certs.ServerFiles{}, time.Now, nil)
		require.NoError(t, err)
		require.Nil(t, none)
	})
}

func TestClient(t *testing.T) {
	t.Parallel()
	t.Run("says what to do about an authority that it does not know", func(t *testing.T) {
		t.Parallel()
		b := setup(t, false)
		_, err := b.meet(certs.ClientFiles{CA: testkit.NewAuthority(t).File})
		require.Contains(t, hint.Region(err), "--ca FILE")
	})
	t.Run("refuses files that contradict the address or each other", func(t *testing.T) {
		t.Parallel()
		for address, f := range map[string]certs.ClientFiles{
			"http://x": {CA: "some"}, "https://x": {CA: "missing"}, "https://y": {Pair: certs.Pair{Cert: "only"}},
		} {
			_, err := certs.For(address, f)
			require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		}
		plain, err := certs.For("http://x", certs.ClientFiles{})
		require.NoError(t, err)
		require.Nil(t, plain)
	})
	require.Empty(t, hint.Region(nil))
	require.Empty(t, hint.Region(io.EOF))
}
