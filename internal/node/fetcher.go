package node

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

const (
	// wholeSize is the limit below which a body is kept in memory and stored in one commit. A kill loses all of
	// it, which is within the 1 MiB that may be fetched twice.
	wholeSize = sqlite.MaxChunk
	// chunkSize is one commit of a longer body. With the unread bytes in the socket (receiveBuffer) it stays below
	// the same 1 MiB.
	chunkSize     = 512 << 10
	receiveBuffer = 128 << 10 // the kernel doubles it

	defaultReadIdle = 10 * time.Second

	// maxWindow bounds the memory of a zstd decoder.
	maxWindow = 8 << 20
)

// Fetcher downloads bodies over HTTP into a sink, and resumes after interruptions.
type Fetcher struct {
	Client *http.Client
	// ReadIdle is how long a connection may be silent before it is cut (default 10 s).
	ReadIdle time.Duration
	// Attempts is how many attempts in a row may gain nothing (default 8).
	Attempts int
	// Backoff is the first pause between attempts, doubled up to 32 times it (default 200 ms).
	Backoff  time.Duration
	Counters *Counters
	Log      *slog.Logger
}

// FetchRequest says what to fetch, and with which token.
type FetchRequest struct {
	BaseURL      string
	DeploymentID string
	Token        string
	Want         fleet.Content
	// IdleTimeout ends the fetch when nothing new arrived for that time (default 120 s).
	IdleTimeout time.Duration
}

// sink receives a body in order. Appended data is durable, except a body appended as a whole: the sink keeps
// data itself, and the caller stores it.
type sink interface {
	Received() int64
	Append(ctx context.Context, data []byte) error
	// Restart drops what was received.
	Restart(ctx context.Context) error
	// Seal verifies the whole body; a mismatch discards it and is hash_mismatch.
	Seal(ctx context.Context) error
}

// NewHTTPClient makes the client of a node's bulk traffic: no redirects, which could carry a token elsewhere,
// no transparent decompression, and a small receive buffer. security configures https://; nil trusts the
// system's certificates.
func NewHTTPClient(security *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: security, DisableCompression: true, MaxIdleConnsPerHost: 16,
			IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, addr)
				if tcp, ok := conn.(*net.TCPConn); ok {
					err = errors.Join(err, tcp.SetReadBuffer(receiveBuffer))
				}
				return conn, err
			},
		},
	}
}

// Fetch completes and verifies the body in the sink, and returns the number of bytes on the wire. The token is
// in a header only, and in no error.
func (f *Fetcher) Fetch(ctx context.Context, req FetchRequest, to sink, progress func(done int64)) (int64, error) {
	size := req.Want.Size
	if size > wholeSize {
		size = chunkSize
	}
	d := &download{
		fetcher: f, req: req, to: to, progress: progress, best: to.Received(), buf: make([]byte, 0, max(size, 1)),
	}
	err := f.retry(ctx, req, "config", d.attempt)
	if err == nil {
		err = to.Seal(ctx)
	}
	if fleet.KindOf(err) == fleet.HashMismatch {
		f.Counters.HashMismatch.Add(1)
	}
	return d.wire, err
}

// FetchRun fetches a revision's run section and verifies its hash.
func (f *Fetcher) FetchRun(ctx context.Context, req FetchRequest, want fleet.Hash) ([]byte, error) {
	var body []byte
	err := f.retry(ctx, req, "run", func(ctx context.Context, tick func()) (gained bool, err error) {
		body, err = f.small(ctx, req, tick)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	if got := fleet.Hash(hex.EncodeToString(sum[:])); got != want {
		f.Counters.HashMismatch.Add(1)
		return nil, fleet.Errorf(fleet.HashMismatch, "the run section has hash %s; expected %s", got, want)
	}
	if _, err := parseRun(body); err != nil {
		return nil, err
	}
	return body, nil
}

func parseRun(body []byte) (fleet.RunSection, error) {
	var run fleet.RunSection
	if err := json.Unmarshal(body, &run); err != nil {
		return run, fleet.Errorf(fleet.Invalid, "the run section is not valid JSON").At("/run")
	}
	return run, run.Validate("/run")
}

// retry repeats an attempt until it succeeds, fails for good, or gains nothing in too many attempts or for too
// long.
func (f *Fetcher) retry(ctx context.Context, req FetchRequest, what string, attempt func(ctx context.Context, tick func()) (gained bool, err error)) error {
	idle := orDefault(req.IdleTimeout, 120*time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// This watch counts only new bytes; the read-idle one counts any.
	watch := time.AfterFunc(idle, func() {
		cancel(communication("fetch %s: no progress in %s", what, idle))
	})
	defer watch.Stop()
	most := f.Attempts
	if most <= 0 {
		most = 8
	}
	for failed := 0; ; {
		gained, err := attempt(ctx, func() { watch.Reset(idle) })
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if !errors.Is(err, errAgain) {
			return err
		}
		if failed++; gained {
			failed = 1
		}
		if failed >= most {
			return communication("fetch %s: %d attempts in a row without progress: %v", what, failed, err)
		}
		f.Log.Info("fetch interrupted, retrying", "what", what, "deployment", req.DeploymentID, "err", err)
		if err := f.pause(ctx, failed); err != nil {
			return err
		}
	}
}

// pause waits longer with each failure, with jitter so that nodes do not retry in step.
func (f *Fetcher) pause(ctx context.Context, failed int) error {
	first := orDefault(f.Backoff, 200*time.Millisecond)
	wait := first << min(failed-1, 5)
	return pause.For(ctx, wait/2+rand.N(wait/2+1)) //nolint:gosec // jitter is no secret
}

// errAgain marks an error that another attempt may fix.
var errAgain = errors.New("interrupted")

func again(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errAgain, fmt.Errorf(format, args...))
}

// communication makes a transient error (N41): by its prefix the region knows to ask what the node holds.
func communication(format string, args ...any) error {
	return fleet.Errorf(fleet.Communication, "Communication failure: "+format, args...)
}

// refusal maps the status of an answer without a body to an error. It leaves out the answer's text, which comes
// from outside.
func refusal(status int) error {
	switch {
	case status == http.StatusNotFound:
		return fleet.Errorf(fleet.Stale, "the region no longer offers this delivery")
	case status == http.StatusUnauthorized:
		return fleet.Errorf(fleet.Unauthenticated, "the region refused the fetch token")
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return again("the region answered %d", status)
	}
	return communication("the region answered %d, which is not expected", status)
}

func (f *Fetcher) request(ctx context.Context, req FetchRequest, tail string) (*http.Request, error) {
	if !fleet.ValidID(req.DeploymentID) {
		return nil, fleet.Errorf(fleet.Invalid, "invalid deployment id: want 32 hex digits").At("/deploymentId")
	}
	url := strings.TrimRight(req.BaseURL, "/") + "/api/internal/deployments/" + req.DeploymentID + "/" + tail
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "invalid fetch base URL").At("/centralFetchBaseUrl")
	}
	r.Header.Set("Authorization", "Bearer "+req.Token)
	return r, nil
}

func (f *Fetcher) small(ctx context.Context, req FetchRequest, tick func()) (body []byte, err error) {
	ctx, stall := newStall(ctx, orDefault(f.ReadIdle, defaultReadIdle))
	defer stall.stop()
	r, err := f.request(ctx, req, "run")
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := f.Client.Do(r)
	if err != nil {
		return nil, again("reach the region: %w", stall.explain(err))
	}
	defer func() { _ = resp.Body.Close() }() // a body that was read has nothing to lose
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode)
	}
	body, err = io.ReadAll(io.LimitReader(stall.watch(resp.Body, tick), fleet.MaxRun+1))
	if err != nil {
		return nil, again("read run section: %w", stall.explain(err))
	}
	if len(body) > fleet.MaxRun {
		return nil, fleet.Errorf(fleet.HashMismatch, "the run section is longer than %d bytes", fleet.MaxRun)
	}
	return body, nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
