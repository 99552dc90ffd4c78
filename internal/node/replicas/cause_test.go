package replicas

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// says answers the first request of a connection with a text, and ends the connection.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<10))
		_, _ = io.WriteString(c, text)
	}
}

// S76, S79, S87, X8, X10: why a probe failed, for whatever a port may answer, without any of its words.
func TestCauses(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	hangs := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for name, row := range map[string]struct {
		answers func(net.Conn)
		check   fleet.HealthCheck
		want    string
	}{
		"it is healthy":                {says("HTTP/1.1 200 OK\r\n\r\n"), fleet.HealthCheck{}, ""},
		"a redirect passes":            {says("HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n"), fleet.HealthCheck{}, ""},
		"an announcement comes first":  {says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), fleet.HealthCheck{}, ""},
		"it wants a password":          {says("HTTP/1.1 401 " + secret + "\r\nX: " + secret + "\r\n\r\n" + secret), fleet.HealthCheck{}, "status 401 Unauthorized, expected 200 to 399"},
		"it wants another status":      {says("HTTP/1.1 503 Busy\r\n\r\n"), fleet.HealthCheck{ExpectedStatus: 204}, "status 503 Service Unavailable, expected 204"},
		"a status without a name":      {says("HTTP/1.1 599 Busy\r\n\r\n"), fleet.HealthCheck{}, "status 599, expected 200 to 399"},
		"it redirects":                 {says("HTTP/1.1 302 Found\r\nLocation: /" + secret + "\r\n\r\n"), fleet.HealthCheck{ExpectedStatus: 200}, "status 302 Found (a redirect is not followed), expected 200"},
		"it answers as HTTP/0.9":       {says("<html>" + secret), fleet.HealthCheck{}, "the answer has no HTTP status line (HTTP/0.9, or another protocol)"},
		"it is no web server":          {says("SSH-2.0-OpenSSH_9.6\r\n"), fleet.HealthCheck{}, "the answer has no HTTP status line (HTTP/0.9, or another protocol)"},
		"it answers little":            {says("ok"), fleet.HealthCheck{}, "the answer has no HTTP status line (HTTP/0.9, or another protocol)"},
		"it speaks HTTP/2 only":        {says("\x00\x00\x06\x04\x00\x00\x00\x00\x00"), fleet.HealthCheck{}, "the port speaks HTTP/2 only, the check HTTP/1.1"},
		"a TLS alert":                  {says("\x15\x03\x01\x00\x02\x02\x46"), fleet.HealthCheck{}, "the port speaks TLS, the check plain HTTP"},
		"its status is none":           {says("HTTP/1.1 " + secret + "\r\n\r\n"), fleet.HealthCheck{}, "the header of the answer is malformed"},
		"its header line is malformed": {says("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n"), fleet.HealthCheck{}, "the header of the answer is malformed"},
		"its header is too large":      {says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n"), fleet.HealthCheck{}, "the header of the answer is larger than 64 KiB"},
		"its header is cut off":        {says("HTTP/1.1 200 OK\r\nX: y\r\n"), fleet.HealthCheck{}, "connection closed within the header of the answer"},
		"its status line is cut off":   {says("HTT"), fleet.HealthCheck{}, "the header of the answer is malformed"},
		"it closes the connection":     {says(""), fleet.HealthCheck{}, causeClosed},
		"it resets the connection": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // of a TCP listener
		}, fleet.HealthCheck{}, causeReset},
		"it does not answer": {hangs, fleet.HealthCheck{Timeout: 0.2}, "connected, no answer within 0.2 s"},
		"it does not end its header": {func(c net.Conn) {
			says("HTTP/1.1 200 OK\r\n")(c)
			hangs(c)
		}, fleet.HealthCheck{Timeout: 0.2}, "the header of the answer is incomplete after 0.2 s"},
		"a TCP check asks for no answer": {hangs, fleet.HealthCheck{Type: fleet.HealthTCP}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = port.Close() })
			go func() {
				if conn, err := port.Accept(); err == nil {
					row.answers(conn)
					_ = conn.Close()
				}
			}()
			check := row.check.WithDefaults()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.check.Timeout > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), time.Duration(check.Timeout*float64(time.Second)))
				defer cancel()
			}
			got := newProber(guardian.SinceBoot).probe(ctx, port.Addr().String(), check)
			require.Equal(t, row.want, got)
			require.NotContains(t, got, secret)
		})
	}
}

// S87: a server of HTTPS answers a plain request in a way of its own.
func TestCauseOfTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	got := newProber(guardian.SinceBoot).probe(t.Context(), server.Listener.Addr().String(), fleet.HealthCheck{})
	require.Equal(t, "status 400 Bad Request, expected 200 to 399", got, "Go's server says so over plain HTTP")
}

// X10: a check is named without the query of its request, and within the limit of a report.
func TestCheckText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check fleet.HealthCheck
		want  string
	}{
		{fleet.HealthCheck{}, "GET /health on 127.0.0.1:80"},
		{fleet.HealthCheck{Path: "/health?token=s3cret"}, "GET /health on 127.0.0.1:80"},
		{fleet.HealthCheck{Path: "health#s3cret", Method: "HEAD"}, "HEAD /health on 127.0.0.1:80"},
		{fleet.HealthCheck{Type: fleet.HealthTCP}, "TCP connection to 127.0.0.1:80"},
	} {
		require.Equal(t, c.want, checkText(c.check.WithDefaults(), "127.0.0.1:80"))
	}
	require.LessOrEqual(t, len(checkText(fleet.HealthCheck{Path: "/" + strings.Repeat("ä", 400)}.WithDefaults(), "127.0.0.1:80")), fleet.MaxCheck)
}

func TestListensText(t *testing.T) {
	t.Parallel()
	require.Empty(t, listensText([]string{"80", "8080"}, 8080), "the port of the check")
	require.Equal(t, "it listens on no port", listensText(nil, 8080))
	require.Equal(t, "it listens on 127.0.0.1:8080, 9090", listensText([]string{"127.0.0.1:8080", "9090"}, 8080))
	require.Equal(t, "it listens on 1, 2, 3, 4, 5, 6, 7, 8 and more", listensText(strings.Split("123456789", ""), 8080))
}

// X8, X11: why a check fails is reported while the replica is not healthy, and with its end; a healthy one reports nothing.
// Where nothing listens on the port of the check, it names those that the replica listens on (gpustack 3086).
func TestReportsWhyChecksFail(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *Options) { o.FailingEvery = 100 * time.Millisecond })
	elsewhere := web(func(d *fleet.Definition) {
		d.Command = []string{"sh", "-c", `PORT=0 exec "$0" program`, d.Command[0]}
		d.Health.Timeout, d.Startup.Deadline = 1, 600
	})
	b.ask(line(first, b.defined(elsewhere)), line(second, b.defined(web())))
	listens := regexp.MustCompile(`^it listens on 127\.0\.0\.1:\d+$`)
	b.eventually(func() bool {
		f := b.status(first).GetHealthFailure()
		return f.GetTimes() > 1 && f.GetCause() == causeRefused && listens.MatchString(f.GetListens()) // it takes some time to listen
	}, "it is not reported")
	f := b.status(first).GetHealthFailure()
	require.Equal(t, "GET /health on "+b.status(first).GetEndpoint(), f.GetCheck())
	require.Positive(t, f.GetAge().AsDuration())
	b.eventually(func() bool { return b.status(first).GetHealthFailure().GetTimes() > f.GetTimes() }, "it is not reported again")
	require.Equal(t, string(fleet.HealthNotChecked), b.status(first).GetHealth())
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Nil(t, b.status(second).GetHealthFailure())
}

// X8, S84: what is given up says what its check came to, also to the next connection.
func TestGivenUpSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
		d.Command = []string{"sleep", "1000"}
		d.Startup.Deadline = 0.5
	}))))
	st := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
	require.Equal(t, fleet.ReasonStartupDeadline, st.GetReason())
	require.Equal(t, causeRefused, st.GetHealthFailure().GetCause())
	require.Equal(t, "it listens on no port", st.GetHealthFailure().GetListens())
}

// X11: without a check that fails there is no timer, and a failure after a report waits for its turn.
func TestFailuresAreReportedTogether(t *testing.T) {
	t.Parallel()
	k := New(Options{Now: func() time.Duration { return time.Hour }})
	require.False(t, k.failures.timed)
	w := k.add(known{NodeReplica: line(first, ""), Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked})
	w.def = &fleet.Definition{Process: fleet.Process{Ports: []fleet.ProcessPort{{Name: "http"}}, Health: &fleet.HealthCheck{}}}
	w.probe = decide.Probe(decide.StartProbes(fleet.HealthCheck{}, time.Minute, time.Hour), fleet.HealthCheck{}, "status 500", time.Hour)
	w.keepFailing()
	require.False(t, k.feed.dirty[first], "it is in the next report, and asks for none")
	k.reportFailing()
	require.False(t, w.tells, "it did not fail since")
	k.failures.ids[first] = true
	k.reportFailing()
	require.True(t, w.tells)
	w.probe = decide.Probe(w.probe, fleet.HealthCheck{}, "status 500", time.Hour)
	w.keepFailing()
	require.True(t, k.feed.dirty[first])
	require.Equal(t, 2, w.known.Failing.Health.Times)
	require.False(t, w.tells)
}
