package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// N23, N24, N25, N26, N27, N28, N29, N30, N68, N74, N91, N92
func TestFetchTokens(t *testing.T) {
	t.Parallel()
	r, f := delivery(t, `{"config":{"a":1}}`)
	get := func(path, token string) int {
		t.Helper()
		a := r.call(token, http.MethodGet, path, nil)
		run := r.call(token, http.MethodGet, strings.TrimSuffix(path, "/config")+"/run", nil)
		if a.status != http.StatusOK {
			require.NotContains(t, string(a.body), `{"a":1}`)
			a.problem(t)
			require.Equal(t, a.status, run.status)
		}
		return a.status
	}
	unknown := "/api/internal/deployments/" + strings.Repeat("0", 32) + "/config"

	require.Equal(t, http.StatusOK, get(f.path+"/config", f.token))
	require.Equal(t, http.StatusUnauthorized, get(f.path+"/config", ""), "a missing token")
	require.Equal(t, http.StatusUnauthorized, get(f.path+"/config", f.token+"x"), "a wrong token")
	require.Equal(t, http.StatusUnauthorized, get(f.path+"/config", r.admin), "a user's token")
	require.Equal(t, http.StatusUnauthorized, get(f.path+"/config?token="+f.token, ""), "a token in the URL")
	require.Equal(t, http.StatusNotFound, get(unknown, f.token), "an unknown id")
	require.Equal(t, http.StatusNotFound, get(unknown, ""), "an unknown id without a token")
	require.Equal(t, http.StatusNotFound, get("/api/internal/deployments/not-an-id/config", f.token))

	r.sql(`UPDATE fetch_tokens SET expires_at = now() - interval '1 second' WHERE deployment_id = $1`, f.id)
	require.Equal(t, http.StatusUnauthorized, get(f.path+"/config", f.token), "an expired token of a live id")
	r.sql(`UPDATE fetch_tokens SET expires_at = now() + interval '1 hour' WHERE deployment_id = $1`, f.id)

	r.put(press7Path, `{"config":{"a":2}}`)
	newer := r.deliver(press, "2")
	require.Equal(t, http.StatusNotFound, get(f.path+"/config", f.token), "superseded")
	require.Equal(t, http.StatusNotFound, get(f.path+"/config", "wrong"), "superseded, wrong token")
	require.Equal(t, http.StatusUnauthorized, get(newer.path+"/config", f.token), "the token of another delivery")
	require.Equal(t, http.StatusOK, get(newer.path+"/config", newer.token))

	r.sql(`UPDATE pending SET expires_at = now() - interval '1 second'`)
	require.Equal(t, http.StatusNotFound, get(newer.path+"/config", newer.token), "expired")
	require.Equal(t, http.StatusNotFound, get(newer.path+"/config", "wrong"), "expired, wrong token")
	r.sql(`UPDATE pending SET expires_at = now() + interval '1 hour'`)

	r.walk(press, fleet.Step{End: &fleet.End{
		Subject: press, Delivery: newer.id, State: fleet.DeliveryFailed, Operation: fleet.OperationFailed, Reason: "test",
	}}, nil)
	require.Equal(t, http.StatusNotFound, get(newer.path+"/config", newer.token), "closed")

	require.Positive(t, r.metric(`holdfast_fetch_refusals_total{reason="dead_id"}`))
	require.Positive(t, r.metric(`holdfast_fetch_refusals_total{reason="token"}`))
}

// metric reads one line of /metrics.
func (r *region) metric(line string) float64 {
	r.t.Helper()
	_, rest, found := strings.Cut(string(r.call(r.viewer, http.MethodGet, "/metrics", nil).body), "\n"+line+" ")
	require.True(r.t, found, line)
	text, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(r.t, err)
	return v
}

// bigConfig is a config of several chunks that compresses well, in its canonical form.
func bigConfig() []byte {
	var b bytes.Buffer
	b.WriteString(`{"lines":[`)
	for i := 0; b.Len() < 1<<20+100_000; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"line %d of the config of a press"`, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// N2, N5, N22, N82, N93, N96, N97
func TestFetchBody(t *testing.T) {
	t.Parallel()
	want := bigConfig()
	r, f := delivery(t, `{"config":`+string(want)+`}`)
	hash := string(compose.HashOf(want))
	get := func(headers ...string) reply {
		return r.call(f.token, http.MethodGet, f.path+"/config", nil, headers...)
	}

	t.Run("gives the identity by default", func(t *testing.T) {
		a := get()
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, serve.Quoted(hash), a.header.Get("ETag"))
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.Equal(t, fmt.Sprint(len(want)), a.header.Get("Holdfast-Size"))
		require.Empty(t, a.header.Get("Content-Encoding"))
		require.True(t, bytes.Equal(want, a.body))
	})

	for _, c := range []struct{ accept, coding string }{
		{"zstd", "zstd"},
		{"gzip, zstd", "zstd"},
		{"gzip", "gzip"},
		{"zstd;q=0, gzip", "gzip"},
		{"gzip;q=0.5,zstd;q=0.1", "zstd"},
		{"br", ""},
		{"identity", ""},
		{"zstd;q=0", ""},
	} {
		t.Run("answers Accept-Encoding "+c.accept, func(t *testing.T) {
			a := get("Accept-Encoding", c.accept)
			require.Equal(t, http.StatusOK, a.status)
			require.Equal(t, c.coding, a.header.Get("Content-Encoding"))
			require.Equal(t, "Accept-Encoding", a.header.Get("Vary"))
			body, tag := bytes.NewReader(a.body), serve.Quoted(hash+"-"+c.coding)
			var plainBody io.Reader = body
			var err error
			switch c.coding {
			case "zstd":
				plainBody, err = zstd.NewReader(body, zstd.WithDecoderMaxWindow(8<<20))
			case "gzip":
				plainBody, err = gzip.NewReader(body)
			default:
				tag = serve.Quoted(hash)
			}
			require.NoError(t, err)
			got, err := io.ReadAll(plainBody)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
			require.Equal(t, tag, a.header.Get("ETag"))
			if c.coding != "" {
				require.Less(t, len(a.body), len(want)/5)
			}
		})
	}

	t.Run("resumes by range, always in the identity", func(t *testing.T) {
		at := len(want)/2 + 7
		a := get("Range", fmt.Sprintf("bytes=%d-", at), "If-Range", serve.Quoted(hash), "Accept-Encoding", "zstd")
		require.Equal(t, http.StatusPartialContent, a.status)
		require.Empty(t, a.header.Get("Content-Encoding"))
		require.Equal(t, serve.Quoted(hash), a.header.Get("ETag"))
		require.Equal(t, fmt.Sprintf("bytes %d-%d/%d", at, len(want)-1, len(want)), a.header.Get("Content-Range"))
		require.True(t, bytes.Equal(want[at:], a.body))
	})

	t.Run("sends all again when If-Range names something else", func(t *testing.T) {
		for _, tag := range []string{serve.Quoted(hash + "-zstd"), serve.Quoted(strings.Repeat("0", 64))} {
			a := get("Range", "bytes=100-", "If-Range", tag)
			require.Equal(t, http.StatusOK, a.status)
			require.True(t, bytes.Equal(want, a.body))
		}
	})

	t.Run("refuses a range behind the end", func(t *testing.T) {
		a := get("Range", fmt.Sprintf("bytes=%d-", len(want)))
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, a.status)
		require.Equal(t, fmt.Sprintf("bytes */%d", len(want)), a.header.Get("Content-Range"))
	})

	t.Run("sends nothing to who has it", func(t *testing.T) {
		for _, accept := range []string{"identity", "zstd", "gzip"} {
			tags := []string{serve.Quoted(hash), `"x", W/` + serve.Quoted(hash)}
			if accept != "identity" {
				tags = append(tags, serve.Quoted(hash+"-"+accept))
			}
			for _, tag := range tags {
				a := get("If-None-Match", tag, "Accept-Encoding", accept)
				require.Equal(t, http.StatusNotModified, a.status, accept+" "+tag)
				require.Empty(t, a.body)
			}
			require.Equal(t, http.StatusOK, get("If-None-Match", serve.Quoted("x"), "Accept-Encoding", accept).status)
		}
	})

	t.Run("answers HEAD without a body", func(t *testing.T) {
		for _, accept := range []string{"identity", "zstd"} {
			a := r.call(f.token, http.MethodHead, f.path+"/config", nil, "Accept-Encoding", accept)
			require.Equal(t, http.StatusOK, a.status)
			require.Empty(t, a.body)
			require.Contains(t, a.header.Get("ETag"), hash)
		}
		require.Equal(t, http.StatusUnauthorized, r.call("", http.MethodHead, f.path+"/config", nil).status)
	})

	t.Run("counts the bytes as they travel", func(t *testing.T) {
		before := r.metric(`holdfast_fetch_bytes_total{coding="zstd"}`)
		a := get("Accept-Encoding", "zstd")
		require.EqualValues(t, len(a.body), r.metric(`holdfast_fetch_bytes_total{coding="zstd"}`)-before)
	})
}

// N96, N97
func TestFetchOfAnArtifact(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.enrolled("plant-1-a")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB that would compress well
	up := r.call(r.operator, http.MethodPost, "/api/v1/artifacts", want)
	require.Equal(t, http.StatusCreated, up.status, string(up.body))
	artifact := into[api.Artifact](t, up)
	require.Equal(t, compose.HashOf(want), artifact.SHA256)
	require.EqualValues(t, len(want), artifact.Size)
	r.put(press7Path, api.InstancePut{Artifact: artifact.SHA256})
	f := r.deliver(press, "1")

	a := r.call(f.token, http.MethodGet, f.path+"/config", nil, "Accept-Encoding", "zstd, gzip")
	require.Equal(t, http.StatusOK, a.status)
	require.Empty(t, a.header.Get("Content-Encoding"), "artifacts are opaque")
	require.Equal(t, "application/octet-stream", a.header.Get("Content-Type"))
	require.True(t, bytes.Equal(want, a.body))
	require.Equal(t, http.StatusNotFound, r.call(f.token, http.MethodGet, f.path+"/run", nil).status, "it has no run section")

	desired := r.get(press7Path + "/config?revision=desired")
	require.Equal(t, "application/octet-stream", desired.header.Get("Content-Type"))
	require.True(t, bytes.Equal(want, desired.body))
	require.Equal(t, http.StatusNotFound, r.get(press7Path+"/config").status, "nothing is deployed yet")
}

// N96
func TestAReaderThatStallsIsCut(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.enrolled("plant-1-a")
	big := bytes.Repeat([]byte{7}, 12<<20) // more than the sockets between the two can hold
	up := r.call(r.operator, http.MethodPost, "/api/v1/artifacts", big)
	require.Equal(t, http.StatusCreated, up.status)
	r.put(press7Path, api.InstancePut{Artifact: into[api.Artifact](t, up).SHA256})
	f := r.deliver(press, "1")

	r.server.Stall = 50 * time.Millisecond
	ended := make(chan struct{})
	handler, err := r.server.routes("test")
	require.NoError(t, err)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(ended)
		handler.ServeHTTP(w, req)
	}))
	defer web.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(web.URL, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // it is cut by the other side
	_, err = fmt.Fprintf(conn, "GET %s/config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", f.path, f.token)
	require.NoError(t, err)
	select {
	case <-ended: // although not one byte was read
	case <-time.After(20 * time.Second):
		t.Fatal("a reader that stalls holds the server for ever")
	}
}
