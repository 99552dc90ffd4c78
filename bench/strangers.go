package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	// strangersMode is the first argument of the process that has them.
	strangersMode = "strangers"

	strangers       = 10_000
	strangersFor    = time.Minute
	strangerReturns = 5 * time.Second // at the mean, after the server closed its connection
	strangerWrites  = time.Second     // a byte of a slow one
	strangersArrive = 2 * time.Second // all of them
	spareFiles      = 500
	honestPause     = 10 * time.Millisecond // between two calls of one honest caller

	strangerMemory = 100.0 // MB above idle
	strangerSlow   = 2.0   // times the value without them
)

// strangerKinds are what a connection sends, and whether it goes on with a byte now and then: nothing;
// a request or the start of the protocol, slowly; one whose rest never comes.
func strangerKinds(http, link string) []strangerKind {
	const (
		half = "POST /api/internal/nodes/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{"
		slow = "GET /api/v1/sites HTTP/1.1\r\nHost: x\r\nX-Slow: "
		// The preface of HTTP/2 and settings without a value.
		preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	)
	return []strangerKind{
		{http, "", false},
		{http, slow, true},
		{http, half, false},
		{link, "", false},
		{link, preface[:12], true},
		{link, preface, false},
	}
}

type strangerKind struct {
	address, text string
	slow          bool
}

// crowdTally is what the strangers saw.
type crowdTally struct {
	Opened int64 `json:"opened"`
	Open   int64 `json:"open"`
	Failed int64 `json:"failed"`
}

// runStrangers opens connections (API, link, count) that show no token, and opens each again a while after
// it was closed, until its input ends; then it says how many there were.
func runStrangers(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 { //nolint:mnd // the three below
		return errors.New("strangers API LINK COUNT")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("read the count: %w", err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if files.Max < uint64(n+spareFiles) { //nolint:gosec // never negative
		return fmt.Errorf("%d connections need a limit of %d open files; the hard limit here is %d: raise it with ulimit -Hn", n, n+spareFiles, files.Max)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var t, most crowdTally
	var all sync.WaitGroup
	kinds := strangerKinds(args[0], args[1])
	for i := range n {
		all.Go(func() {
			_ = pause.For(ctx, strangersArrive*time.Duration(i)/time.Duration(n))
			for ctx.Err() == nil {
				kinds[i%len(kinds)].stay(ctx, &t)
				_ = pause.For(ctx, rand.N(2*strangerReturns)) //nolint:gosec // a herd without a common beat
			}
		})
	}
	for pause.For(ctx, lookEvery) == nil {
		most.Open = max(most.Open, atomic.LoadInt64(&t.Open))
	}
	all.Wait()
	t.Open = most.Open
	return json.NewEncoder(out).Encode(t)
}

// stay opens a connection and keeps it until the server closes it.
func (k strangerKind) stay(ctx context.Context, t *crowdTally) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", k.address)
	if err != nil {
		atomic.AddInt64(&t.Failed, 1)
		return
	}
	atomic.AddInt64(&t.Opened, 1)
	atomic.AddInt64(&t.Open, 1)
	defer atomic.AddInt64(&t.Open, -1)
	ends := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer ends()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, k.text); err != nil {
		return
	}
	buf := make([]byte, 512) //nolint:mnd // an answer is not looked at
	for {
		if k.slow {
			_ = conn.SetReadDeadline(time.Now().Add(strangerWrites))
		}
		_, err := conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_, err = conn.Write([]byte("x"))
		}
		if err != nil {
			return
		}
	}
}

// strangerLab is a region with honest callers, whose calls are timed.
type strangerLab struct {
	region *region
	kept   *api.Client
	fresh  *api.Client // a connection for each call
	stream nodev1.ControlPlane_ConnectClient
	id     string
}

// honest are the times of calls, in ms.
type honest struct{ get, fresh, beat float64 }

// measureStrangers has many connections without a token at one server, with all of its roles: what they
// cost it, and what those who have one notice.
func measureStrangers(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	k := &strangerLab{region: r}
	end, err := k.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := k.watch(ctx, settle); err != nil { // what callers cost without strangers is the server's at idle
		return nil, err
	}
	peaks, err := r.rest([]string{"server"})
	if err != nil {
		return nil, err
	}
	before, err := k.watch(ctx, strangersFor/2)
	if err != nil {
		return nil, err
	}
	var with honest
	var crowd crowdTally
	above, err := peaked(peaks, func() (err error) {
		with, crowd, err = k.beside(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := k.watch(ctx, strangersFor/2)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d were opened in %.0f s, at most %d at once", crowd.Opened, strangersFor.Seconds(), crowd.Open)
	row := func(name string, of func(honest) float64) figure {
		return figure{
			name: fmt.Sprintf("strangers: p99 of %s beside %d connections without a token", name, strangers), unit: "ms",
			series: series{ours: []float64{of(with)}, plain: []float64{(of(before) + of(after)) / 2}}, limit: strangerSlow,
		}
	}
	return []figure{
		{
			name: fmt.Sprintf("strangers: memory of the server, %d connections without a token, above idle", strangers), unit: "MB",
			series: series{ours: []float64{float64(above[0]) / megabyte}}, by: byValue, limit: strangerMemory, note: note,
		},
		row("a GET", func(h honest) float64 { return h.get }),
		row("a GET on a new connection", func(h honest) float64 { return h.fresh }),
		row("a heartbeat", func(h honest) float64 { return h.beat }),
	}, nil
}

// connect makes the honest callers.
func (k *strangerLab) connect(ctx context.Context) (end func(), err error) {
	r := k.region
	k.kept = r.api
	if k.fresh, err = api.NewClient(r.doc.API, r.doc.Token, api.WithTransport(&http.Transport{DisableKeepAlives: true})); err != nil {
		return nil, err
	}
	token, err := r.api.CreateToken(ctx, api.TokenRequest{Role: "provider", Note: "bench"}, api.Mutation{})
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(r.doc.Link, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	end = func() { _ = conn.Close() } // it was only used
	client := nodev1.NewControlPlaneClient(conn)
	as := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token.Token)
	got, err := client.Register(as, &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: "honest"})
	if err == nil {
		k.id = got.GetConnectionId()
		k.stream, err = client.Connect(as)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("connect a provider: %w", err)
	}
	return end, nil
}

// beside times the calls while the strangers are there.
func (k *strangerLab) beside(ctx context.Context) (honest, crowdTally, error) {
	var t crowdTally
	self, err := os.Executable()
	if err != nil {
		return honest{}, t, err
	}
	herd := exec.Command(self, strangersMode, strings.TrimPrefix(k.region.doc.API, "http://"), k.region.doc.Link, strconv.Itoa(strangers))
	herd.Stderr = os.Stderr
	herd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := herd.StdoutPipe()
	if err != nil {
		return honest{}, t, err
	}
	orders, err := herd.StdinPipe()
	if err == nil {
		err = herd.Start()
	}
	if err != nil {
		return honest{}, t, fmt.Errorf("start the strangers: %w", err)
	}
	times, err := k.watch(ctx, strangersFor)
	err = errors.Join(err, orders.Close())
	err = errors.Join(err, json.NewDecoder(out).Decode(&t), herd.Wait())
	return times, t, err
}

// watch times calls, one after the other, for a while.
func (k *strangerLab) watch(ctx context.Context, d time.Duration) (honest, error) {
	var times [3][]time.Duration
	until := time.Now().Add(d)
	calls := []func() error{
		func() error { _, err := k.kept.Nodes(ctx, api.Page{}); return err },
		func() error { _, err := k.fresh.Nodes(ctx, api.Page{}); return err },
		k.beat,
	}
	for time.Now().Before(until) {
		for i, one := range calls {
			began := time.Now()
			if err := one(); err != nil {
				return honest{}, err
			}
			times[i] = append(times[i], time.Since(began))
		}
		if err := pause.For(ctx, honestPause); err != nil {
			return honest{}, err
		}
	}
	p99 := func(of []time.Duration) float64 { return inMillis(quantile(of, 0.99)) } //nolint:mnd // by name
	return honest{p99(times[0]), p99(times[1]), p99(times[2])}, nil
}

// beat sends a heartbeat and waits for its answer.
func (k *strangerLab) beat() error {
	err := k.stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{
		Heartbeat: &nodev1.Heartbeat{ConnectionId: k.id, ProtocolVersion: 1},
	}})
	for err == nil {
		var m *nodev1.ConnectResponse
		if m, err = k.stream.Recv(); m.GetHeartbeatAck() != nil {
			return nil
		}
	}
	return fmt.Errorf("heartbeat: %w", err)
}
