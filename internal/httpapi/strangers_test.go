package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// soon is when what is ended at once has ended, on a busy machine too.
const soon = 10 * time.Second

// half sends a request whose body of 1 MB never comes whole, and gives its connection.
func (r *region) half(method, path, token string, length int, headers ...string) net.Conn {
	r.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n%s\r\n{\"", method, path, token, length, strings.Join(headers, ""))
	require.NoError(r.t, err)
	return conn
}

// begun is half of a request whose body the server reads by now.
func (r *region) begun(method, path, token string, length int) net.Conn {
	r.t.Helper()
	conn := r.half(method, path, token, length, "Expect: 100-continue\r\n")
	reads := "HTTP/1.1 100 Continue\r\n\r\n"
	said := make([]byte, len(reads))
	_, err := io.ReadFull(conn, said)
	require.NoError(r.t, err)
	require.Equal(r.t, reads, string(said))
	return conn
}

// closed reads the answer of a connection that is closed after it.
func closed(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(now().Add(soon)))
	from := bufio.NewReader(conn)
	a, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, from)
	require.NoError(t, err, "the connection stays open")
	require.True(t, a.Close)
	return a
}

// X19, X21
func TestStrangers(t *testing.T) {
	t.Parallel()
	t.Run("one without a valid token is answered and closed, whatever it still had to send", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		for _, path := range []string{"/api/v1/plan", "/api/internal/nodes/plant-1-a/reports", "/api/v1/artifacts"} {
			for _, length := range []int{100, 1 << 30} {
				a := closed(t, r.half(http.MethodPost, path, "nonsense", length))
				require.Equal(t, http.StatusUnauthorized, a.StatusCode, path)
			}
		}
	})
	t.Run("an enrolment is small, and is here in time", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		a := closed(t, r.half(http.MethodPost, "/api/internal/nodes/enrol", "", 4<<10+1))
		require.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
		r.server.machines.Enrolling = strangers.NewLimit(2, 100*time.Millisecond)
		a = closed(t, r.half(http.MethodPost, "/api/internal/nodes/enrol", "", 100))
		require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	})
	t.Run("of too many enrolments the first goes", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.server.machines.Enrolling = strangers.NewLimit(2, time.Hour)
		first := r.half(http.MethodPost, "/api/internal/nodes/enrol", "", 100)
		for n := 1; n < 3; n++ {
			require.Eventually(t, func() bool { here, _, _ := r.server.machines.Enrolling.Counts(); return here == n }, soon, time.Millisecond)
			r.half(http.MethodPost, "/api/internal/nodes/enrol", "", 100)
		}
		require.Equal(t, http.StatusServiceUnavailable, closed(t, first).StatusCode)
		r.site()
		r.enrolled("plant-1-a") // does not go by this door: it is let in beside them
	})
}

// trickles sends bytes until it is answered, and gives the status.
func trickles(t *testing.T, conn net.Conn) int {
	t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		}
	}()
	require.NoError(t, conn.SetReadDeadline(now().Add(soon)))
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	return a.StatusCode
}

// X10: a body is refused once what let it in was taken back, however slowly it comes.
func TestBodiesEndWithTheirToken(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	key := r.enrolled("plant-1-a")
	open := map[string]net.Conn{
		"a change":  r.begun(http.MethodPut, press7Path, r.operator, 1<<20),
		"an upload": r.begun(http.MethodPost, "/api/v1/artifacts", r.operator, 1<<20),
		"a report":  r.begun(http.MethodPost, "/api/internal/nodes/plant-1-a/reports", r.signed(key), 1<<20),
	}
	still := r.begun(http.MethodPut, press7Path, r.admin, 100)
	r.sql(`UPDATE api_tokens SET revoked_at = now() WHERE role = 'operator'`)
	require.NoError(t, r.store.RevokeNode(t.Context(), "plant-1-a"))
	for what, conn := range open {
		require.Equal(t, http.StatusUnauthorized, trickles(t, conn), what)
	}
	require.Equal(t, http.StatusBadRequest, trickles(t, still), "it is whole, and no JSON")
}

// N97
func TestReading(t *testing.T) {
	t.Parallel()
	t.Run("a slow sender takes what it sent, and leaves the rest to others", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.server.Memory = serve.NewMemory(4<<20, 2<<20, time.Hour)
		for range 8 {
			r.half(http.MethodPut, press7Path, r.operator, 60<<20)
		}
		text := fmt.Sprintf(`{"config":{"a":%q}}`, strings.Repeat("x", 1<<20))
		a := r.call(r.operator, http.MethodPut, press7Path, text)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	})
	t.Run("a sender that is too slow is cut", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.server.Stall = 100 * time.Millisecond
		conn := r.half(http.MethodPut, press7Path, r.operator, 1<<20)
		require.Equal(t, http.StatusBadRequest, trickles(t, conn)) // a byte in time for each read, and still too few
	})
}

// X21
func TestVigil(t *testing.T) {
	t.Parallel()
	t.Run("what is open ends soon after its token", func(t *testing.T) {
		t.Parallel()
		for how, statement := range map[string]string{
			"revoked at another server": `UPDATE api_tokens SET revoked_at = now() WHERE note = 'viewer'`,
			"expired":                   `UPDATE api_tokens SET expires_at = now() WHERE note = 'viewer'`,
		} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				r := setup(t)
				resp, err := plain.Do(r.request(r.viewer, http.MethodGet, "/api/v1/events", nil, "Accept", "text/event-stream"))
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				r.sql(statement)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = io.Copy(io.Discard, resp.Body)
				}()
				select {
				case <-ended:
				case <-time.After(soon):
					t.Fatal("the stream goes on")
				}
				require.Eventually(t, func() bool { return r.get("/api/v1/events").status == http.StatusUnauthorized }, soon, time.Millisecond)
			})
		}
	})
	t.Run("one token has a number of streams, and each that ends makes room", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.server.streams.most = 2
		open := func() *http.Response {
			resp, err := plain.Do(r.request(r.viewer, http.MethodGet, "/api/v1/events", nil, "Accept", "text/event-stream"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp
		}
		first := open()
		open()
		require.Equal(t, http.StatusTooManyRequests, open().StatusCode)
		resp, err := plain.Do(r.request(r.operator, http.MethodGet, "/api/v1/events", nil, "Accept", "text/event-stream"))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, "another token has its own")
		require.NoError(t, resp.Body.Close())
		require.NoError(t, first.Body.Close())
		require.Eventually(t, func() bool { return open().StatusCode == http.StatusOK }, soon, 10*time.Millisecond)
	})
}
