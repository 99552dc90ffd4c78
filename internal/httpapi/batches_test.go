package httpapi

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

const (
	liveBatch = "11111111111111111111111111111111"
	deadBatch = "22222222222222222222222222222222"
	batchPath = "/api/internal/batches/" + liveBatch
)

// What nodes send and get (internal/httpapi/machines).
type (
	wantedBodies struct {
		Hashes []fleet.Hash `json:"hashes"`
	}
	sentResults struct {
		Results []fleet.BatchResult `json:"results"`
	}
	gotTickets struct {
		Commands []fleet.RefreshDeploymentCommand `json:"commands"`
	}
)

// someHash has the form of a hash.
var someHash = fleet.Hash(strings.Repeat("0", 64))

// withBatch is a region with one live batch, and the tokens of its two nodes.
func withBatch(t *testing.T) (r *region, f *fleetFake, tokens [2]string) {
	t.Helper()
	r, f = withFleets(t)
	active, a, err := identity.NewToken(32)
	require.NoError(t, err)
	standby, b, err := identity.NewToken(32)
	require.NoError(t, err)
	f.tokens = func(id fleet.BatchID) ([]deliveries.FetchToken, error) {
		if id != liveBatch {
			return nil, fleet.Errorf(fleet.NotFound, "there is no batch")
		}
		return []deliveries.FetchToken{{Node: "plant-1-a", Hash: a[:]}, {Node: "plant-1-b", Hash: b[:]}}, nil
	}
	return r, f, [2]string{active, standby}
}

// N91, N92
func TestBatchTokens(t *testing.T) {
	t.Parallel()
	r, f, tokens := withBatch(t)
	active, standby := tokens[0], tokens[1]
	f.bodies = func(fleet.NodeName, []fleet.Hash, func(fleet.Hash, []byte) error) error { return nil }
	other, _, err := identity.NewToken(32)
	require.NoError(t, err)
	for _, c := range []struct {
		method, tail, body string
		ok                 int
	}{
		{http.MethodGet, "items", "", http.StatusOK},
		{http.MethodPost, "bodies", `{"hashes":[]}`, http.StatusOK},
		{http.MethodPost, "results", `{"results":[{"deploymentId":"` + liveBatch + `","instance":"a"}]}`, http.StatusNoContent},
	} {
		t.Run(c.tail, func(t *testing.T) {
			for _, token := range []string{active, other, r.admin, ""} {
				for _, id := range []string{deadBatch, "x", strings.ToUpper(deadBatch[:31]) + "G"} {
					a := r.call(token, c.method, "/api/internal/batches/"+id+"/"+c.tail, c.body)
					require.Equal(t, http.StatusNotFound, a.status, "a dead id, whatever the token")
				}
			}
			for _, token := range []string{other, r.admin, "", "x"} {
				a := r.call(token, c.method, batchPath+"/"+c.tail, c.body)
				require.Equal(t, http.StatusUnauthorized, a.status)
				require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
			}
			require.Equal(t, http.StatusUnauthorized, r.call("", c.method, batchPath+"/"+c.tail+"?token="+active, c.body).status)
			for token, node := range map[string]fleet.NodeName{active: "plant-1-a", standby: "plant-1-b"} {
				require.Equal(t, c.ok, r.call(token, c.method, batchPath+"/"+c.tail, c.body).status)
				if c.tail != "bodies" {
					require.Equal(t, node, f.node(), "the token says which node asks")
				}
			}
		})
	}
	require.NotContains(t, r.log.String(), active)
}

// N98
func TestBatchItems(t *testing.T) {
	t.Parallel()
	r, f, tokens := withBatch(t)
	active := tokens[0]
	require.Equal(t, `{"items":[]}`, string(r.call(active, http.MethodGet, batchPath+"/items", nil).body))
	for i := range 3 {
		f.items = append(f.items, fleet.BatchItem{
			DeploymentID: fmt.Sprintf("%032d", i), Instance: fleet.InstanceName(fmt.Sprintf("press-%d", i)), Gone: i == 2,
			Revision: fleet.Revision{Version: fleet.Version{Era: 1, Revision: int64(i)}, Action: fleet.ActionDeploy}, Run: []byte(`{"command":["a"]}`),
		})
	}
	want := slices.Clone(f.items)
	for i := range f.items {
		f.items[i].Run = []byte(`{"command": ["a"]}`) // as jsonb writes it
	}
	for _, coding := range []string{"", "gzip", "zstd"} {
		a := r.call(active, http.MethodGet, batchPath+"/items", nil, "Accept-Encoding", coding)
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, coding, a.header.Get("Content-Encoding"))
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		a.body = uncoded(t, coding, a.body)
		got := into[struct{ Items []fleet.BatchItem }](t, a)
		require.Equal(t, want, got.Items, "in the form that hashes are of")
	}
}

// N24, N98: what the database keeps of a run section has spaces, which its hash has not.
func TestBatchItemsHaveTheRunSectionsThatTheirHashesAreOf(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	node := fleet.NodeName("plant-1-a")
	r.enrolled(node)
	run := `"run":{"command":["/bin/press","--fast"],"env":{"B":"2","A":"1"}}`
	var targets []fleets.FleetTarget
	for i, section := range []string{run, run, `"run":{"command":["/bin/oven"]}`, `"enabled":true`} {
		name := fmt.Sprintf("press-%d", i)
		r.put("/api/v1/sites/plant-1/instances/"+name+"?deploy=false", `{"config":{"a":1},`+section+`}`)
		targets = append(targets, r.target(name))
	}
	r.sql(`INSERT INTO fleet_runs (fleet, run, project, generation, spec, state, waves, until_wave, requested_by, deadline_at)
		VALUES ('bench', 1, 'default', 1, '{}', 'running', 1, 1, 'ann', now() + interval '1 day')`)
	r.sql(`INSERT INTO fleet_targets (fleet, run, site, name, wave) SELECT 'bench', 1, 'plant-1', 'press-' || n, 1 FROM generate_series(0, 3) n`)
	patch := compose.ContentOf([]byte(`{"b":2}`))
	_, err := r.store.PutBodies(t.Context(), fleet.DefaultProject, [][]byte{[]byte(`{"b":2}`)})
	require.NoError(t, err)
	out, err := r.store.ReleaseBatch(t.Context(), deliveries.BatchRelease{
		ID: liveBatch, Site: "plant-1", Fleet: "bench", FleetRun: 1, Workflow: "w", Run: "r", Actor: "ann", Reason: "bench",
		Deadline: time.Hour, TTL: time.Minute, Items: r.changes(fleet.FleetChange{Patch: &patch}, targets...),
	})
	require.NoError(t, err)
	require.Equal(t, len(targets), out.Claimed)
	token, hash, err := identity.NewToken(32)
	require.NoError(t, err)
	told, err := r.store.PrepareBatch(t.Context(), fleet.BatchPrepare{ID: liveBatch, Node: out.Nodes[0], Tries: 3, TTL: time.Minute, TokenHash: hash[:]})
	require.NoError(t, err)
	got := into[struct{ Items []fleet.BatchItem }](t, r.call(token, http.MethodGet, batchPath+"/items", nil)).Items
	require.Equal(t, told.Command.Digest, fleet.BatchDigest(got))
	for i, item := range got {
		if i == 3 {
			require.Empty(t, item.Run)
			continue
		}
		require.Equal(t, item.Revision.RunHash, compose.HashOf(item.Run), "%s", item.Run)
	}
}

func uncoded(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var from io.Reader = bytes.NewReader(body)
	var err error
	switch coding {
	case "gzip":
		from, err = gzip.NewReader(from)
	case "zstd":
		from, err = zstd.NewReader(from)
	}
	require.NoError(t, err)
	out, err := io.ReadAll(from)
	require.NoError(t, err)
	return out
}

// bodiesOf reads a stream of bodies as a node does.
func bodiesOf(t *testing.T, stream []byte) map[fleet.Hash]string {
	t.Helper()
	out := map[fleet.Hash]string{}
	for len(stream) > 0 {
		require.Greater(t, len(stream), 39)
		size := binary.BigEndian.Uint64(stream[32:40])
		hash := fleet.Hash(hex.EncodeToString(stream[:32]))
		require.LessOrEqual(t, size, uint64(len(stream)-40))
		out[hash] = string(stream[40 : 40+size])
		require.Equal(t, hash, compose.HashOf(stream[40:40+size]))
		stream = stream[40+size:]
	}
	return out
}

func hashesOf(n int) wantedBodies {
	var in wantedBodies
	for i := range n {
		in.Hashes = append(in.Hashes, compose.HashOf([]byte(fmt.Sprint("body ", i))))
	}
	return in
}

// N97, N98
func TestBatchBodies(t *testing.T) {
	t.Parallel()
	r, f, tokens := withBatch(t)
	active := tokens[0]
	large := []byte(strings.Repeat("x", fleet.MaxBatchBody+1))
	f.bodies = func(node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
		require.Equal(t, fleet.NodeName("plant-1-a"), node)
		for i := range hashes {
			if i == 1 {
				continue // cannot be had
			}
			text := []byte(fmt.Sprint("body ", i))
			if err := emit(compose.HashOf(text), text); err != nil {
				return err
			}
		}
		return emit(compose.HashOf(large), large)
	}
	for _, coding := range []string{"", "gzip", "zstd"} {
		t.Run("come in one stream "+coding, func(t *testing.T) {
			a := r.call(active, http.MethodPost, batchPath+"/bodies", hashesOf(fleet.MaxBatchItems), "Accept-Encoding", coding)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			require.Equal(t, "application/vnd.holdfast.bodies", a.header.Get("Content-Type"))
			require.Equal(t, coding, a.header.Get("Content-Encoding"))
			require.Equal(t, "Accept-Encoding", a.header.Get("Vary"))
			got := bodiesOf(t, uncoded(t, coding, a.body))
			require.Len(t, got, fleet.MaxBatchItems-1, "without what cannot be had, and what is too large")
			require.Equal(t, "body 7", got[compose.HashOf([]byte("body 7"))])
		})
	}

	t.Run("may be none", func(t *testing.T) {
		a := r.call(active, http.MethodPost, batchPath+"/bodies", `{"hashes":[]}`, "Accept-Encoding", "gzip")
		require.Equal(t, http.StatusOK, a.status)
	})

	for name, c := range map[string]struct {
		body  any
		field string
	}{
		"too many":    {hashesOf(fleet.MaxBatchItems + 1), "/hashes"},
		"no hash":     {`{"hashes":["abc"]}`, "/hashes/0"},
		"one twice":   {wantedBodies{append(hashesOf(1).Hashes, hashesOf(1).Hashes...)}, "/hashes/1"},
		"no document": {`[]`, "/"},
		"a text":      {`{"hashes":"all"}`, "/hashes"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			p := r.call(active, http.MethodPost, batchPath+"/bodies", c.body).problem(t)
			require.Equal(t, http.StatusBadRequest, p.Status)
			require.Equal(t, c.field, p.Field)
		})
	}
	t.Run("refuses what is too long", func(t *testing.T) {
		require.Equal(t, http.StatusRequestEntityTooLarge, r.call(active, http.MethodPost, batchPath+"/bodies", strings.Repeat(" ", 1<<20+1)).status)
	})
}

// N97: an answer that broke off never looks whole.
func TestBatchBodiesBreakOff(t *testing.T) {
	t.Parallel()
	r, f, tokens := withBatch(t)
	active := tokens[0]
	noise := make([]byte, 100_000)
	_, err := rand.Read(noise)
	require.NoError(t, err)

	var size atomic.Int64 // the answer may reach the client before the handler has returned
	f.bodies = func(_ fleet.NodeName, _ []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
		if n := size.Load(); n > 0 {
			if err := emit(compose.HashOf(noise[:n]), noise[:n]); err != nil {
				return err
			}
		}
		return fleet.Errorf(fleet.Unavailable, "the database went away")
	}

	t.Run("before the first body it is a problem", func(t *testing.T) {
		p := r.call(active, http.MethodPost, batchPath+"/bodies", hashesOf(1), "Accept-Encoding", "zstd").problem(t)
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
	})

	for _, n := range []int{10, len(noise)} {
		for _, coding := range []string{"identity", "gzip", "zstd"} {
			t.Run(fmt.Sprintf("after %d bytes the connection is cut (%s)", n, coding), func(t *testing.T) {
				size.Store(int64(n))
				resp, err := plain.Do(r.request(active, http.MethodPost, batchPath+"/bodies", hashesOf(1), "Accept-Encoding", coding))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					require.NoError(t, resp.Body.Close())
				}
				require.Error(t, err)
			})
		}
	}
}

// N98, X27
func TestBatchResults(t *testing.T) {
	t.Parallel()
	r, f, tokens := withBatch(t)
	active := tokens[0]
	result := func(i int) fleet.BatchResult {
		return fleet.BatchResult{DeploymentID: fmt.Sprintf("%032d", i), Instance: "press-7", Held: fleet.Held{Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: 3}, Content: fleet.Content{Hash: someHash, Size: 5},
		}}, Fetched: 5}
	}
	send := func(results ...fleet.BatchResult) reply {
		return r.call(active, http.MethodPost, batchPath+"/results", sentResults{results})
	}

	t.Run("are recorded, their words cut", func(t *testing.T) {
		bad := result(1)
		bad.Reason, bad.Message = fleet.HashMismatch, "no\x00t this "+strings.Repeat("é", 2000)
		a := send(result(0), bad)
		require.Equal(t, http.StatusNoContent, a.status, string(a.body))
		require.Equal(t, result(0), f.results[0])
		require.Equal(t, fleet.HashMismatch, f.results[1].Reason)
		require.True(t, strings.HasPrefix(f.results[1].Message, "not this é"))
		require.LessOrEqual(t, len(f.results[1].Message), 1024)
		require.Equal(t, http.StatusNoContent, send().status)
	})

	t.Run("may come from a newer node", func(t *testing.T) {
		a := r.call(active, http.MethodPost, batchPath+"/results", `{"results":[{"deploymentId":"`+liveBatch+`","instance":"a","tomorrow":1}]}`)
		require.Equal(t, http.StatusNoContent, a.status, string(a.body))
	})

	f.results = nil
	many := make([]fleet.BatchResult, fleet.MaxBatchItems+1)
	for i := range many {
		many[i] = result(i)
	}
	with := func(change func(*fleet.BatchResult)) []fleet.BatchResult {
		b := result(0)
		change(&b)
		return []fleet.BatchResult{result(1), b}
	}
	for _, c := range []struct {
		name, field string
		results     []fleet.BatchResult
	}{
		{"too many", "/results", many},
		{"one twice", "/results/1/deploymentId", []fleet.BatchResult{result(0), result(0)}},
		{"no id", "/results/1/deploymentId", with(func(b *fleet.BatchResult) { b.DeploymentID = "x" })},
		{"no name", "/results/1/instance", with(func(b *fleet.BatchResult) { b.Instance = "Press" })},
		{"no version", "/results/1/held", with(func(b *fleet.BatchResult) { b.Held.Era = -1 })},
		{"no high water", "/results/1/held", with(func(b *fleet.BatchResult) { b.Held.HighWater.Revision = -1 })},
		{"no hash", "/results/1/held", with(func(b *fleet.BatchResult) { b.Held.Content.Hash = "abc" })},
		{"no hash of the run section", "/results/1/held", with(func(b *fleet.BatchResult) { b.Held.RunHash = "abc" })},
		{"less than no bytes", "/results/1/fetched", with(func(b *fleet.BatchResult) { b.Fetched = -1 })},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			p := send(c.results...).problem(t)
			require.Equal(t, http.StatusBadRequest, p.Status)
			require.Equal(t, c.field, p.Field)
			require.Empty(t, f.results)
		})
	}
}

// N87, N97
func TestTicketBodies(t *testing.T) {
	t.Parallel()
	f := &fleetFake{}
	r := setup(t, func(d *Deps) { f.Store, d.Store = d.Store, f })
	r.site()
	r.enrolled("plant-1-b")
	token, hash, err := identity.NewToken(32)
	require.NoError(t, err)
	_, err = r.store.BeginReconcile(t.Context(), fleet.ReconcileStart{
		ID: liveBatch, Node: "plant-1-b", Reason: fleet.ReconcileOnStart, Run: "run-1", Build: "b1", TokenHash: hash[:], TokenLife: time.Minute,
	})
	require.NoError(t, err)
	f.bodies = func(node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
		require.Equal(t, fleet.NodeName("plant-1-b"), node)
		return emit(hashes[0], []byte("body 0"))
	}
	const path = "/api/internal/sites/plant-1/bodies"
	a := r.call(token, http.MethodPost, path, hashesOf(2), "Accept-Encoding", "zstd")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, map[fleet.Hash]string{hashesOf(1).Hashes[0]: "body 0"}, bodiesOf(t, uncoded(t, "zstd", a.body)))

	require.Equal(t, http.StatusUnauthorized, r.call(r.admin, http.MethodPost, path, hashesOf(1)).status)
	require.Equal(t, http.StatusUnauthorized, r.call("", http.MethodPost, path, hashesOf(1)).status)
	require.Equal(t, http.StatusUnauthorized, r.call(token, http.MethodPost, "/api/internal/sites/plant-2/bodies", hashesOf(1)).status)
	require.Equal(t, "/hashes", r.call(token, http.MethodPost, path, hashesOf(fleet.MaxBatchItems+1)).problem(t).Field)
}
