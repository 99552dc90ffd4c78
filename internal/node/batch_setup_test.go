package node

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// many is a node with a region that has one batch for it.
type many struct {
	*bench
	batch *httptest.Server
	cmd   fleet.BatchCommand

	mu      sync.Mutex
	items   []fleet.BatchItem
	bodies  map[fleet.Hash][]byte
	hashes  [][]fleet.Hash // of each request for bodies
	results []fleet.BatchResult
	posts   int                                               // of results
	spoil   func(w http.ResponseWriter, r *http.Request) bool // true when it answered
	stream  func(w http.ResponseWriter, hashes []fleet.Hash)  // instead of all bodies in order
	told    [][]fleet.NodeInstance
}

const batchToken = testToken

func batched(t testing.TB, role fleet.Role) *many {
	t.Helper()
	m := &many{bench: setup(t), bodies: map[fleet.Hash][]byte{}}
	m.batch = httptest.NewServer(m)
	t.Cleanup(m.batch.Close)
	m.opt.Told = m.hears
	epoch := int64(1)
	if role != fleet.RoleActive {
		epoch = 2
		_, _, err := m.store.Adopt(t.Context(), sqlite.Right{Role: role, Epoch: epoch}, "")
		require.NoError(t, err)
	}
	m.cmd = fleet.BatchCommand{
		BatchID: fleet.BatchID(strings.Repeat("b", 32)), Site: "plant-1", Role: role, Epoch: epoch,
		CentralFetchBaseURL: m.batch.URL, FetchToken: m.sealed, IdleTimeout: 10 * time.Second,
	}
	return m
}

// hears notes what the region need not be told again.
func (m *many) hears(held []fleet.NodeInstance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, held)
}

type item func(i *fleet.BatchItem)

// add puts a deploy of a config into the batch; the region has its body.
func (m *many) add(name fleet.InstanceName, n int64, config string, changes ...item) *fleet.BatchItem {
	i := fleet.BatchItem{
		DeploymentID: string(hashOf([]byte(fmt.Sprint(name, n, config))))[:32], Instance: name,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDeploy, Enabled: true,
			Content: fleet.Content{Kind: fleet.ContentJSON, Hash: hashOf([]byte(config)), Size: int64(len(config))},
		},
	}
	m.bodies[i.Revision.Content.Hash] = []byte(config)
	m.region.mu.Lock()
	m.region.bodies[i.DeploymentID] = []byte(config)
	m.region.mu.Unlock()
	for _, change := range changes {
		change(&i)
	}
	m.items = append(m.items, i)
	return &m.items[len(m.items)-1]
}

func runsWith(run string) item {
	return func(i *fleet.BatchItem) { i.Run, i.Revision.RunHash = []byte(run), hashOf([]byte(run)) }
}

func isDeleted(i *fleet.BatchItem) {
	i.Revision.Action, i.Revision.Enabled, i.Revision.Content = fleet.ActionDelete, false, fleet.Content{}
}

func isGone(i *fleet.BatchItem) { i.Gone = true }

func (m *many) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/batches/") {
		m.region.ServeHTTP(w, r)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.spoil != nil && m.spoil(w, r) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+batchToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch tail(r) {
	case "items":
		_ = json.NewEncoder(w).Encode(map[string]any{"items": m.items})
	case "bodies":
		hashes := asked(r)
		m.hashes = append(m.hashes, hashes)
		w.Header().Set("Content-Type", "application/vnd.holdfast.bodies")
		if m.stream != nil {
			m.stream(w, hashes)
			return
		}
		for _, h := range hashes {
			if data, is := m.bodies[h]; is {
				_, _ = w.Write(record(h, data))
			}
		}
	case "results":
		var in struct{ Results []fleet.BatchResult }
		_ = json.NewDecoder(r.Body).Decode(&in)
		m.posts++
		m.results = append(m.results, in.Results...)
		w.WriteHeader(http.StatusNoContent)
	}
}

func tail(r *http.Request) string { return r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] }

func asked(r *http.Request) []fleet.Hash {
	var in struct{ Hashes []fleet.Hash }
	_ = json.NewDecoder(r.Body).Decode(&in)
	return in.Hashes
}

// record is a body as it stands in the stream.
func record(h fleet.Hash, data []byte) []byte {
	raw, _ := hex.DecodeString(string(h))
	raw = binary.BigEndian.AppendUint64(raw, uint64(len(data)))
	return append(raw, data...)
}

// command announces what is in the batch.
func (m *many) command() fleet.BatchCommand {
	m.cmd.Count, m.cmd.Digest = len(m.items), fleet.BatchDigest(m.items)
	return m.cmd
}

// run carries the batch out and forgets what the region was told before.
func (m *many) run() (fleet.BatchOutcome, error) {
	m.mu.Lock()
	m.results, m.hashes, m.posts, m.told = nil, nil, 0, nil
	m.mu.Unlock()
	return m.ApplyBatch(m.t.Context(), m.command(), nil)
}

func (m *many) mustRun() fleet.BatchOutcome {
	m.t.Helper()
	out, err := m.run()
	require.NoError(m.t, err)
	require.Len(m.t, m.results, len(m.items))
	return out
}

// next empties the batch for another one.
func (m *many) next() {
	m.items = nil
	id := hashOf([]byte(m.cmd.BatchID))[:32]
	m.cmd.BatchID = fleet.BatchID(id)
}

// said is what the region heard of a name.
func (m *many) result(name fleet.InstanceName) fleet.BatchResult {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.results, func(r fleet.BatchResult) bool { return r.Instance == name })
	require.GreaterOrEqual(m.t, at, 0, "no result of %s", name)
	return m.results[at]
}

func (m *many) reason(name fleet.InstanceName) fleet.Kind { return m.result(name).Reason }

// asks is how many bodies the region was asked for.
func (m *many) asks() (n int) {
	for _, h := range m.hashes {
		n += len(h)
	}
	return n
}

func numbered(i int) fleet.InstanceName { return fleet.InstanceName(fmt.Sprintf("press-%03d", i)) }
