package region

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// writeFile gives the path of a new file.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// C87, X10
func TestTemporalAccess(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	own := certs.ClientFiles{CA: ca.File}
	own.Cert, own.Key = ca.Issue(filepath.Join(t.TempDir(), "client"))
	foreign := own
	_, foreign.Key = ca.Issue(filepath.Join(t.TempDir(), "other"))
	const secret = "s3cret"
	key := writeFile(t, secret+"\n")
	for name, row := range map[string]struct {
		in    TemporalAccess
		wrong string // "" is right
	}{
		"nothing is in the clear":                         {in: TemporalAccess{}},
		"TLS by the system's authorities":                 {in: TemporalAccess{TLS: true}},
		"TLS by an authority of its own":                  {in: TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: ca.File}}},
		"a certificate is shown":                          {in: TemporalAccess{TLS: true, Files: own}},
		"a key is sent":                                   {in: TemporalAccess{TLS: true, APIKeyFile: key}},
		"a certificate and a key":                         {in: TemporalAccess{TLS: true, Files: own, APIKeyFile: key}},
		"another name":                                    {in: TemporalAccess{TLS: true, ServerName: "a-b.c_d.tmprl.cloud"}},
		"another name that is an address":                 {in: TemporalAccess{TLS: true, ServerName: "::1"}},
		"an authority without TLS":                        {TemporalAccess{Files: certs.ClientFiles{CA: ca.File}}, "--temporal-tls-ca: the connection to Temporal does not use TLS (give --temporal-tls as well, or omit --temporal-tls-ca)"},
		"a certificate without TLS":                       {TemporalAccess{Files: own}, "or omit --temporal-tls-ca, --temporal-tls-cert, --temporal-tls-key)"},
		"a name without TLS":                              {TemporalAccess{ServerName: "temporal"}, "give --temporal-tls as well"},
		"a key without TLS":                               {TemporalAccess{APIKeyFile: key}, "a key is sent only over TLS (give --temporal-tls as well, or omit --temporal-api-key-file)"},
		"a certificate without its key":                   {TemporalAccess{TLS: true, Files: certs.ClientFiles{Pair: certs.Pair{Cert: own.Cert}}}, "--temporal-tls-cert and --temporal-tls-key must be given together (give both, or neither)"},
		"a key without its certificate":                   {TemporalAccess{TLS: true, Files: certs.ClientFiles{Pair: certs.Pair{Key: own.Key}}}, "must be given together"},
		"a key of another certificate":                    {TemporalAccess{TLS: true, Files: foreign}, "with the key of that certificate"},
		"a certificate that is not there":                 {TemporalAccess{TLS: true, Files: certs.ClientFiles{Pair: certs.Pair{Cert: "missing.pem", Key: own.Key}}}, "missing.pem"},
		"an authority that is not there":                  {TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: "missing.pem"}}, "read --temporal-tls-ca: open missing.pem"},
		"an authority that is none":                       {TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: key}}, "give a file of certificates in PEM"},
		"a name with a port":                              {TemporalAccess{TLS: true, ServerName: "temporal:7233"}, "without a port"},
		"a name that is a URL":                            {TemporalAccess{TLS: true, ServerName: "https://temporal"}, "give the name as in the certificate"},
		"a key file that is not there":                    {TemporalAccess{TLS: true, APIKeyFile: "missing.key"}, "read --temporal-api-key-file: open missing.key"},
		"a key file that is a directory":                  {TemporalAccess{TLS: true, APIKeyFile: t.TempDir()}, "read --temporal-api-key-file"},
		"a key file that is empty":                        {TemporalAccess{TLS: true, APIKeyFile: writeFile(t, " \n")}, "is empty (give a file that contains only the key, on one line)"},
		"a key file of more than a key":                   {TemporalAccess{TLS: true, APIKeyFile: writeFile(t, secret+"\n"+secret)}, "contains no valid key"},
		"a key file of bytes that no header takes":        {TemporalAccess{TLS: true, APIKeyFile: writeFile(t, secret+"\x00é")}, "contains no valid key"},
		"a key file that is far too long":                 {TemporalAccess{TLS: true, APIKeyFile: writeFile(t, strings.Repeat(secret, 1<<20))}, "contains no valid key"},
		"a key file that has the certificate's key in it": {TemporalAccess{TLS: true, APIKeyFile: own.Key}, "contains no valid key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := row.in.open(time.Now, slog.New(slog.DiscardHandler))
			if row.wrong == "" {
				require.NoError(t, err)
				require.Equal(t, row.in.TLS, got.tls != nil)
				require.Equal(t, row.in.APIKeyFile != "", got.credentials != nil)
				return
			}
			require.ErrorContains(t, err, row.wrong)
			require.Equal(t, fleet.Invalid, fleet.KindOf(err))
			require.NotEmpty(t, hintOf(err))
			require.NotContains(t, fleet.Detail(err), secret)
		})
	}
}

// X10: a key is rotated while the server runs, and is in no log.
func TestAPIKey(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	at, path := time.Now(), writeFile(t, "first\n")
	k, err := openAPIKey(path, func() time.Time { return at }, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	current := func() string {
		got, err := k.current(t.Context())
		require.NoError(t, err)
		return got
	}
	require.Equal(t, "first", current())
	require.NoError(t, os.WriteFile(path, []byte("second"), 0o600))
	require.Equal(t, "first", current(), "it is looked at once a second")
	at = at.Add(keyLookEvery)
	require.Equal(t, "second", current())
	require.NoError(t, os.Remove(path))
	for range 3 {
		at = at.Add(keyLookEvery)
		require.Equal(t, "second", current(), "the last good one")
	}
	require.Equal(t, 1, strings.Count(said.String(), "is invalid"), said.String())
	require.NoError(t, os.WriteFile(path, []byte("third"), 0o600))
	at = at.Add(keyLookEvery)
	require.Equal(t, "third", current())
	for _, key := range []string{"first", "second", "third"} {
		require.NotContains(t, said.String(), key)
	}
}

// upstream is a Temporal that tells who called it, over TLS.
type upstream struct {
	workflowservice.UnimplementedWorkflowServiceServer
	operatorservice.UnimplementedOperatorServiceServer

	address string
	refuse  error    // what a call for the namespace is answered with
	add     error    // what registering attributes is answered with
	known   []string // attributes that are registered

	mu    sync.Mutex
	keys  []string // that came with calls
	shown []string // serial numbers of certificates that came with calls
}

func startUpstream(t *testing.T, conf *tls.Config) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u := &upstream{address: l.Addr().String()}
	var options []grpc.ServerOption
	if conf != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(conf)))
	}
	s := grpc.NewServer(options...)
	workflowservice.RegisterWorkflowServiceServer(s, u)
	operatorservice.RegisterOperatorServiceServer(s, u)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return u
}

func (u *upstream) note(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	u.keys = append(u.keys, strings.Join(md.Get("authorization"), ","))
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			u.shown = append(u.shown, info.State.PeerCertificates[0].SerialNumber.String())
		}
	}
}

// last is what came with the last call.
func (u *upstream) last() (key, shown string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) > 0 {
		key = u.keys[len(u.keys)-1]
	}
	if len(u.shown) > 0 {
		shown = u.shown[len(u.shown)-1]
	}
	return key, shown
}

func (u *upstream) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	u.note(ctx)
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (u *upstream) DescribeNamespace(ctx context.Context, _ *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	u.note(ctx)
	return &workflowservice.DescribeNamespaceResponse{}, u.refuse
}

func (u *upstream) AddSearchAttributes(context.Context, *operatorservice.AddSearchAttributesRequest) (*operatorservice.AddSearchAttributesResponse, error) {
	return &operatorservice.AddSearchAttributesResponse{}, u.add
}

func (u *upstream) CountWorkflowExecutions(_ context.Context, in *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	for _, name := range u.known {
		if strings.HasPrefix(in.GetQuery(), name+" ") {
			return &workflowservice.CountWorkflowExecutionsResponse{}, u.refuse
		}
	}
	return nil, status.Error(codes.InvalidArgument, "invalid query")
}

// caller is as much of a server as speaks to Temporal.
func caller(t *testing.T, u *upstream, access TemporalAccess, now func() time.Time) *server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &server{id: "0123456789", log: log, cfg: ServerConfig{TemporalAddress: u.address, TemporalNamespace: "holdfast", Temporal: access}}
	opened, err := access.open(now, log)
	require.NoError(t, err)
	s.temporal, err = s.dial(opened)
	require.NoError(t, err)
	t.Cleanup(s.temporal.Close)
	return s
}

// reached asks until the answer is not about a connection that is only being made, or that the
// other side closed before its reason was read.
func reached(t *testing.T, s *server) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err = s.reach(t.Context())
		return err == nil || fleet.KindOf(err) != fleet.Internal
	}, time.Minute, time.Millisecond, "%v", err)
	return err
}

// C87: who is not let in is told what to give, and whether waiting may help.
func TestTemporalRefused(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewAuthority(t), testkit.NewAuthority(t)
	files := certs.ServerFiles{ClientCA: ca.File}
	files.Cert, files.Key = ca.Issue(filepath.Join(t.TempDir(), "temporal"))
	conf, err := certs.Server(files, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	own, foreign := certs.ClientFiles{CA: ca.File}, certs.ClientFiles{CA: ca.File}
	own.Cert, own.Key = ca.Issue(filepath.Join(t.TempDir(), "server"))
	foreign.Cert, foreign.Key = other.Issue(filepath.Join(t.TempDir(), "server"))
	wrongCA := own
	wrongCA.CA = other.File
	key := writeFile(t, "s3cret")
	for name, row := range map[string]struct {
		access TemporalAccess
		plain  bool // what Temporal speaks
		refuse error
		kind   fleet.Kind // "" is let in
		hint   string
	}{
		"with a certificate":                         {access: TemporalAccess{TLS: true, Files: own}},
		"with the name that the certificate has":     {access: TemporalAccess{TLS: true, Files: own, ServerName: "localhost"}},
		"with a key":                                 {access: TemporalAccess{TLS: true, Files: own, APIKeyFile: key}},
		"in the clear, both":                         {plain: true},
		"by the system's authorities":                {access: TemporalAccess{TLS: true}, kind: fleet.Invalid, hint: "--temporal-tls-ca FILE"},
		"by another authority":                       {access: TemporalAccess{TLS: true, Files: wrongCA}, kind: fleet.Invalid, hint: "--temporal-tls-ca FILE"},
		"without a certificate":                      {access: TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: ca.File}}, kind: fleet.Unauthenticated, hint: "give --temporal-tls-cert and --temporal-tls-key"},
		"with another authority's certificate":       {access: TemporalAccess{TLS: true, Files: foreign}, kind: fleet.Unauthenticated, hint: "give --temporal-tls-cert and --temporal-tls-key"},
		"by another name":                            {access: TemporalAccess{TLS: true, Files: own, ServerName: "temporal"}, kind: fleet.Invalid, hint: "--temporal-tls-server-name"},
		"over TLS where Temporal has none":           {access: TemporalAccess{TLS: true, Files: own}, plain: true, kind: fleet.Invalid, hint: "leave out --temporal-tls"},
		"in the clear where Temporal has TLS":        {kind: fleet.Unavailable, hint: "give --temporal-tls"},
		"with a key that is not taken":               {access: TemporalAccess{TLS: true, Files: own, APIKeyFile: key}, refuse: status.Error(codes.Unauthenticated, "no"), kind: fleet.Unauthenticated, hint: "--temporal-api-key-file is valid"},
		"with a key that may nothing":                {access: TemporalAccess{TLS: true, Files: own, APIKeyFile: key}, refuse: status.Error(codes.PermissionDenied, "no"), kind: fleet.Denied, hint: "may write to the namespace holdfast"},
		"without a key where Temporal asks for some": {access: TemporalAccess{TLS: true, Files: own}, refuse: status.Error(codes.Unauthenticated, "no"), kind: fleet.Unauthenticated, hint: "give --temporal-api-key-file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := conf
			if row.plain {
				conf = nil
			}
			u := startUpstream(t, conf)
			u.refuse = row.refuse
			err := reached(t, caller(t, u, row.access, time.Now))
			if row.kind == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, row.kind, fleet.KindOf(err), "%v", err)
			require.Contains(t, hintOf(err), row.hint)
			require.NotContains(t, fleet.Detail(err), "s3cret")
		})
	}
}

// C87: a certificate that was renewed is shown by new connections, and a key that was rotated goes
// with the next call, those of nodes too.
func TestTemporalRenewed(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	serving := certs.ServerFiles{ClientCA: ca.File}
	serving.Cert, serving.Key = ca.Issue(filepath.Join(t.TempDir(), "temporal"))
	conf, err := certs.Server(serving, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	u := startUpstream(t, conf)
	key, base := writeFile(t, "first"), filepath.Join(t.TempDir(), "server")
	access := TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: ca.File}, APIKeyFile: key}
	access.Files.Cert, access.Files.Key = ca.Issue(base)
	at := time.Now()
	opened, err := access.open(func() time.Time { return at }, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	connect := func() *server {
		s := &server{id: "0123456789", log: slog.New(slog.DiscardHandler), cfg: ServerConfig{TemporalAddress: u.address, TemporalNamespace: "holdfast"}}
		s.temporal, err = s.dial(opened)
		require.NoError(t, err)
		t.Cleanup(s.temporal.Close)
		return s
	}
	s := connect()
	require.NoError(t, s.reach(t.Context()))
	sent, before := u.last()
	require.Equal(t, "Bearer first", sent)
	require.NotEmpty(t, before)

	require.NoError(t, os.WriteFile(key, []byte("second"), 0o600))
	at = at.Add(keyLookEvery)
	_, err = s.temporal.WorkflowService().GetSystemInfo(t.Context(), &workflowservice.GetSystemInfoRequest{}) // as a node's call is forwarded
	require.NoError(t, err)
	sent, shown := u.last()
	require.Equal(t, "Bearer second", sent)
	require.Equal(t, before, shown)

	ca.Issue(base)
	require.NoError(t, connect().reach(t.Context()))
	_, shown = u.last()
	require.NotEqual(t, before, shown)
}

// C87: who speaks TLS is not told to where Temporal is away behind what ends TLS.
func TestTemporalAwayBehindTLS(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	files := certs.ServerFiles{}
	files.Cert, files.Key = ca.Issue(filepath.Join(t.TempDir(), "temporal"))
	conf, err := certs.Server(files, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	conf.NextProtos = []string{"h2"}
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	s := caller(t, &upstream{address: l.Addr().String()}, TemporalAccess{TLS: true, Files: certs.ClientFiles{CA: ca.File}}, time.Now)
	err = reached(t, s)
	require.Equal(t, fleet.Unavailable, fleet.KindOf(err), "%v", err)
	require.Contains(t, hintOf(err), "check that Temporal is running behind that address")
	require.NotContains(t, hintOf(err), "--temporal-tls")
}

// Who may not register search attributes goes on where somebody has.
func TestAddAttributes(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "no")
	for name, row := range map[string]struct {
		add    error
		known  []string
		refuse error
		kind   fleet.Kind // "" is right
		says   string
	}{
		"it may":                              {},
		"they are there already":              {add: status.Error(codes.AlreadyExists, "there")},
		"it may not, and all are there":       {add: denied, known: attributes()},
		"nobody can, and all are there":       {add: status.Error(codes.Unimplemented, "no"), known: attributes()},
		"it may not, and two are not there":   {add: denied, known: attributes()[2:], kind: fleet.Precondition, says: "lacks the search attributes Site, Node, "},
		"it may nothing":                      {add: denied, known: attributes(), refuse: denied, kind: fleet.Denied, says: "refuses this server"},
		"there is no room":                    {add: status.Error(codes.InvalidArgument, "too many"), kind: fleet.Internal, says: "too many"},
		"the store is away":                   {add: status.Error(codes.Unavailable, "store"), kind: fleet.Internal, says: "store"},
		"the store is away, but all is there": {add: status.Error(codes.Unavailable, "store"), known: attributes()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t, nil)
			u.add, u.known, u.refuse = row.add, row.known, row.refuse
			s := caller(t, u, TemporalAccess{}, time.Now)
			err := s.cfg.unreached(addAttributes(t.Context(), s.temporal, "holdfast"))
			if row.kind == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, row.kind, fleet.KindOf(err), "%v", err)
			require.ErrorContains(t, err, row.says)
		})
	}
}
