//go:build slow

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
)

const (
	// aboveIdle is how far a flood may raise the server's memory.
	aboveIdle = 100 << 20
	// promptly is for what ends within a second, on a busy machine.
	promptly = 4 * time.Second
	// closedBy is for what the server closes after 10 s at most.
	closedBy = 40 * time.Second
)

// What a caller costs before it has shown who it is, what a token may hold open, and what a node's key may
// do to output. The region is this test's own: it floods the server.
// X10, X19, X21, X27
func TestAttackBeforeAuthentication(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	t.Run("200 messages that never end, on one connection of the link", s.partialMessages)
	t.Run("500 enrolments that never end", s.halfEnrolments)
	t.Run("300 bodies behind no token", s.unreadBodies)
	t.Run("slow senders leave others their memory", s.slowSenders)
	t.Run("what is open ends with its token", s.openEnds)
	t.Run("one token opens no more streams than its number", s.streamsOfOne)
	t.Run("a node's key and the output of instances", s.forgedOutput)
}

// flood has the server's memory measured while something is done.
func (s *stack) flood(t *testing.T, do func()) {
	t.Helper()
	pid := s.pid(t, serverName)
	before := memoryLine(t, pid, "VmRSS")
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)) // of the highest value
	do()
	above := memoryLine(t, pid, "VmHWM") - before
	t.Logf("server memory: %d MB above %d MB", above>>20, before>>20)
	require.Less(t, above, int64(aboveIdle))
}

func memoryLine(t *testing.T, pid int, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for _, line := range strings.Split(string(text), "\n") {
		if value, is := strings.CutPrefix(line, name+":"); is {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	require.Fail(t, "no "+name)
	return 0
}

// stalling gives all of a text, and then nothing until it is closed.
type stalling struct {
	text  io.Reader
	given func()
	gone  <-chan struct{}
}

func (r *stalling) Read(p []byte) (int, error) {
	n, err := r.text.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	r.given()
	<-r.gone
	return 0, io.ErrClosedPipe
}

func (s *stack) partialMessages(t *testing.T) {
	const calls, size = 200, 4 << 20
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &plain, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	head := binary.BigEndian.AppendUint32([]byte{0}, size)
	gone := make(chan struct{})
	var sent, ended, refused atomic.Int64
	var all sync.WaitGroup
	s.flood(t, func() {
		for range calls {
			body := &stalling{io.MultiReader(strings.NewReader(string(head)), io.LimitReader(zeros{}, size-1)), func() { sent.Add(1) }, gone}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.doc.Link+nodev1.ControlPlane_Register_FullMethodName, body)
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/grpc")
			req.Header.Set("Te", "trailers")
			all.Go(func() {
				a, err := transport.RoundTrip(req)
				if err == nil {
					_ = a.Body.Close()
				}
				if err == nil && a.Header.Get("Grpc-Status") == strconv.Itoa(int(codes.Unauthenticated)) {
					refused.Add(1)
				}
				ended.Add(1)
			})
		}
		waitFor(t, "each call was sent as far as it goes, or refused", func(context.Context) error {
			if sent.Load()+ended.Load() < calls {
				return errNotYet
			}
			return nil
		})
	})
	close(gone)
	all.Wait()
	t.Logf("%d ended, %d of them as unauthenticated; %d were sent", ended.Load(), refused.Load(), sent.Load())
	require.Positive(t, refused.Load(), "the link answers")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// halfSent sends requests whose bodies lack a byte, and wants each connection closed.
func (s *stack) halfSent(t *testing.T, count int, head string, announced, sent int) {
	t.Helper()
	to := strings.TrimPrefix(s.doc.API, "http://")
	var open []net.Conn
	for range count {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		open = append(open, conn)
	}
	var all sync.WaitGroup
	var stays atomic.Int64
	for _, conn := range open {
		all.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(closedBy))
			_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, announced)
			_, _ = io.CopyN(conn, zeros{}, int64(sent)) // the server may have closed it by now
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				stays.Add(1)
			}
		})
	}
	all.Wait()
	require.Zero(t, stays.Load(), "connections that stay open")
}

func (s *stack) halfEnrolments(t *testing.T) {
	const head = "POST /api/internal/nodes/enrol HTTP/1.1\r\nHost: x\r\n"
	s.flood(t, func() {
		s.halfSent(t, 250, head, 1<<20, 1<<20-1)
		s.halfSent(t, 250, head, 4000, 3999)
	})
}

func (s *stack) unreadBodies(t *testing.T) {
	s.flood(t, func() {
		s.halfSent(t, 150, "POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\n", 100, 1)
		s.halfSent(t, 150, "POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer nonsense\r\n", 1<<30, 1000)
	})
}

// token makes a token of a role.
func (s *stack) token(t *testing.T, role string) api.Token {
	t.Helper()
	made, err := s.api.CreateToken(t.Context(), api.TokenRequest{Role: role, Note: "attack"}, api.Mutation{})
	require.NoError(t, err)
	return made
}

func (s *stack) slowSenders(t *testing.T) {
	const senders, largest = 8, 65 << 20
	slow := s.token(t, "operator").Token
	to := strings.TrimPrefix(s.doc.API, "http://")
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range senders {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "PUT /api/v1/sites/plant-1/instances/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", slow, largest)
		require.NoError(t, err)
		_, err = io.CopyN(conn, zeros{}, 256<<10)
		require.NoError(t, err)
		all.Go(func() {
			for ctx.Err() == nil { // a byte a second
				if _, err := conn.Write([]byte{' '}); err != nil {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	config, err := json.Marshal(map[string]string{"a": strings.Repeat("x", 2<<20)})
	require.NoError(t, err)
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	off := false
	_, err = s.api.PutInstance(within, instanceKey("plant-1", "large"), api.InstancePut{Config: config, Enabled: &off}, api.Mutation{DryRun: true})
	require.NoError(t, err)
	t.Logf("another caller's 2 MB took %v", time.Since(began))
}

// stream opens an event stream by a token.
func (s *stack) stream(t *testing.T, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.doc.API+"/api/v1/events", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	a, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Body.Close() })
	return a
}

func (s *stack) openEnds(t *testing.T) {
	for how, statement := range map[string]string{ // as another server revokes it
		"revoked": `UPDATE api_tokens SET revoked_at = now() WHERE id = $1`,
		"expired": `UPDATE api_tokens SET expires_at = now() WHERE id = $1`,
	} {
		t.Run(how, func(t *testing.T) {
			made := s.token(t, "viewer")
			a := s.stream(t, made.Token)
			_, err := bufio.NewReader(a.Body).ReadString('\n')
			require.NoError(t, err)
			follower, err := api.NewClient(s.doc.API, made.Token)
			require.NoError(t, err)
			follow := func() error {
				_, err := follower.Logs(t.Context(), instanceKey("plant-1", "none"), api.LogQuery{})
				return err
			}
			require.Equal(t, fleet.NotFound, fleet.KindOf(follow()))
			_, err = s.pg.Exec(t.Context(), statement, made.ID)
			require.NoError(t, err)
			began := time.Now()
			ended := make(chan time.Duration, 1)
			go func() {
				_, _ = io.Copy(io.Discard, a.Body)
				ended <- time.Since(began)
			}()
			waitFor(t, "a followed log ends", func(context.Context) error {
				if fleet.KindOf(follow()) != fleet.Unauthenticated {
					return errNotYet
				}
				return nil
			})
			logs := time.Since(began)
			stream := <-ended
			t.Logf("the stream ended after %v, followed logs after %v", stream, logs)
			require.Less(t, logs, promptly)
			require.Less(t, stream, promptly)
		})
	}
}

func (s *stack) streamsOfOne(t *testing.T) {
	const most = 32
	made := s.token(t, "viewer")
	for range most {
		require.Equal(t, http.StatusOK, s.stream(t, made.Token).StatusCode)
	}
	require.Equal(t, http.StatusTooManyRequests, s.stream(t, made.Token).StatusCode)
	require.Equal(t, http.StatusOK, s.stream(t, s.token(t, "viewer").Token).StatusCode, "another token's")
}

// output sends a piece of an instance's output with a node's key.
func (th *thief) output(t *testing.T, s *stack, instance string, offset int64, data []byte) int {
	t.Helper()
	token, err := th.key.Sign(keys.RegionAudience, time.Now())
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"instance": instance, "offset": offset, "data": data})
	require.NoError(t, err)
	code, _ := s.send(t, http.MethodPost, "/api/internal/nodes/"+string(th.key.Node())+"/logs", token, body)
	return code
}

func (s *stack) forgedOutput(t *testing.T) {
	const piece, pieces, keep = 64 << 10, 100, 1 << 20
	key := instanceKey("plant-1", "press-7")
	run := &fleet.Run{Command: []string{"/bin/sh", "-c", `n=0; while :; do n=$((n+1)); echo "line $n."; sleep 0.2; done`}}
	op := s.put(t, key, api.InstancePut{Config: []byte(`{}`), Run: run})
	requireSucceeded(t, s.ended(t, op.ID))
	th := s.steal(t, s.holder(t, "plant-1"), keys.RegionAudience)

	prints := func(after int64) (line, end int64) { // waits for a line beyond one, all of it true
		waitFor(t, fmt.Sprintf("line %d is followed by another", after), func(ctx context.Context) error {
			list, err := s.api.Logs(ctx, key, api.LogQuery{After: end})
			if err != nil {
				return err
			}
			for _, chunk := range list.Items {
				data, err := chunk.Bytes()
				if err != nil {
					return err
				}
				end = chunk.Offset + int64(len(data))
				for _, word := range strings.Fields(string(data)) {
					if n, err := strconv.ParseInt(strings.TrimSuffix(word, "."), 10, 64); err == nil && strings.HasSuffix(word, ".") {
						line = n
					}
				}
			}
			if line <= after {
				return errNotYet
			}
			return nil
		})
		return line, end
	}
	line, _ := prints(0)
	require.Equal(t, http.StatusBadRequest, th.output(t, s, "press-7", math.MaxInt64, []byte("x")))
	list, err := s.api.Logs(t.Context(), key, api.LogQuery{})
	require.NoError(t, err)
	first, err := list.Items[0].Bytes()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(first), "line 1.\n"), "%q", first)
	th.output(t, s, "press-7", 1<<50, []byte("forged\n"))
	line, _ = prints(line) // it goes on beyond the jump
	require.Positive(t, line)

	data := make([]byte, piece)
	for i := range pieces {
		data[0] = byte(i)
		require.Equal(t, http.StatusNotFound, th.output(t, s, "ghost", int64(i), data))
		th.output(t, s, "press-7", int64(i), data)
	}
	n, err := s.count(t.Context(), `SELECT count(*) FROM instance_logs WHERE name = 'ghost'`)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = s.count(t.Context(), `SELECT sum(length(data)) FROM instance_logs WHERE name = 'press-7'`)
	require.NoError(t, err)
	require.LessOrEqual(t, n, int64(keep))
	prints(line)
}
