package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// sharing is a region of several: its store, and the stream that it serves to the others.
type sharing struct {
	name  fleet.RegionName
	store *store.Store
	raw   *pgxpool.Pool
	web   *httptest.Server
	url   string // of the database
}

// mesh is regions whose links can be cut.
type mesh struct {
	t       *testing.T
	regions map[fleet.RegionName]*sharing

	mu   sync.Mutex
	cuts map[[2]fleet.RegionName]context.CancelFunc // ends the streams of a link; nil: it is cut
	cut  map[[2]fleet.RegionName]bool
	asks map[[2]fleet.RegionName]int // how often a stream was asked for

	rivals atomic.Int64 // claims that streams and comparisons told of
}

func newMesh(t *testing.T, names ...fleet.RegionName) *mesh {
	t.Helper()
	m := &mesh{t: t, regions: map[fleet.RegionName]*sharing{}, cuts: map[[2]fleet.RegionName]context.CancelFunc{}, cut: map[[2]fleet.RegionName]bool{}, asks: map[[2]fleet.RegionName]int{}}
	for _, name := range names {
		r := newSharing(t, name, testkit.DatabaseURL(t))
		s := r.store
		h, err := httpapi.New(httpapi.Deps{
			Store: s, Waker: noWaker{}, NodeStarted: func(context.Context, fleet.NodeName) error { return nil },
			Flatten: compose.NewBudget(1 << 20), Region: string(name), PendingTTL: time.Minute, OperationLimit: time.Minute,
			Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := h.WatchAs(r.Context(), fleet.RegionName(r.Header.Get("Peer")), w, r.URL.Query().Get("after"), r.URL.Query().Get("since")); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}))
		t.Cleanup(web.Close)
		r.web = web
		m.regions[name] = r
	}
	return m
}

func newSharing(t *testing.T, name fleet.RegionName, url string) *sharing {
	t.Helper()
	s, err := store.Open(t.Context(), url, string(name))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	raw, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	return &sharing{name: name, store: s, raw: raw, url: url}
}

// from is how one region reaches the others.
type from struct {
	*mesh
	self fleet.RegionName
}

func (from) Allowed(context.Context, fleet.RegionName) error { return nil }

func (f from) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	link := [2]fleet.RegionName{f.self, peer}
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	cut := f.cut[link]
	f.cuts[link] = cancel
	f.asks[link]++
	f.mu.Unlock()
	if cut {
		cancel()
		return nil, fleet.Errorf(fleet.Unavailable, "the link is cut")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.regions[peer].web.URL+"?"+url.Values{"after": {at.Position}, "since": {at.Began}}.Encode(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Peer", string(f.self))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, fleet.Errorf(fleet.Unavailable, "reach %s: %w", peer, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		cancel()
		return nil, fleet.Errorf(fleet.Unavailable, "%s answers %s", peer, resp.Status)
	}
	return &ended{resp.Body, cancel}, nil
}

type ended struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (e *ended) Close() error { e.cancel(); return e.ReadCloser.Close() }

func (m *mesh) setCut(link [2]fleet.RegionName, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[link] = cut
	if end := m.cuts[link]; cut && end != nil {
		end()
	}
}

// forgets has a region forget where it is in the stream of a peer from which it is cut off.
func (m *mesh) forgets(self, peer fleet.RegionName) {
	m.t.Helper()
	m.regions[self].exec(m.t, `UPDATE region_streams SET position = '', began = '' WHERE peer = $1`, string(peer))
	asks := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.asks[[2]fleet.RegionName{self, peer}]
	}
	before := asks() // the next may have read its place already
	require.Eventually(m.t, func() bool { return asks() > before+1 }, patience, 5*time.Millisecond)
}

// follow has each region follow each other one, in short turns, until the context ends.
func (m *mesh) follow(ctx context.Context) (wait func()) {
	return m.followBy(ctx, func(r *sharing) *watch.Follower {
		return &watch.Follower{
			Now: time.Now, Store: r.store, Peers: from{m, r.name}, Log: slog.New(slog.DiscardHandler),
			Turn: 5 * time.Second, Beat: 50 * time.Millisecond, Silence: 20 * time.Second, Retry: 50 * time.Millisecond,
		}
	})
}

func (m *mesh) followBy(ctx context.Context, with func(*sharing) *watch.Follower) (wait func()) {
	var all sync.WaitGroup
	for self, r := range m.regions {
		f := with(r)
		for peer := range m.regions {
			if peer == self {
				continue
			}
			all.Go(func() { m.follows(ctx, f, self, peer) })
		}
	}
	return all.Wait
}

// follows has a region follow another one until the context ends. As its workflow does, it tries again while a database
// is unavailable.
func (m *mesh) follows(ctx context.Context, f *watch.Follower, self, peer fleet.RegionName) {
	for ctx.Err() == nil {
		_, err := f.Follow(ctx, peer, "run", func(fleet.Followed) {})
		kind := fleet.KindOf(err)
		switch {
		case err == nil, kind == fleet.Stale, ctx.Err() != nil:
		case kind == fleet.Unavailable:
			m.t.Logf("%s follows %s again: %v: %v", self, peer, err, errors.Unwrap(err))
		default:
			m.t.Errorf("%s follows %s: %v: %v", self, peer, err, errors.Unwrap(err))
			return
		}
	}
}

// share declares a project whose policy names the regions that have what is in it.
func (m *mesh) share(owner fleet.RegionName, name string, regions ...string) {
	m.t.Helper()
	m.declare(owner, fleet.ProjectKey(fleet.ProjectName(name)), name, nil,
		fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: &fleet.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: string(owner)}}})
}

// apply has changed policies reach what is under them, as their entities do.
func (m *mesh) apply(region fleet.RegionName) {
	m.t.Helper()
	r := m.regions[region]
	rows, err := r.raw.Query(m.t.Context(), `SELECT name FROM policy_turns WHERE ended_at IS NULL`)
	require.NoError(m.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(m.t, err)
	for _, name := range names {
		for done := false; !done; {
			turn, err := r.store.ApplyPolicyPage(m.t.Context(), fleet.PolicyVisit{Kind: fleet.KindProject, Name: name})
			require.NoError(m.t, err)
			done = turn.Done
		}
	}
}

// state is what regions have: of each object of the owners that it is for, its content.
func (m *mesh) owed(of fleet.RegionName) map[string]string {
	m.t.Helper()
	out := map[string]string{}
	for owner, r := range m.regions {
		if owner == of {
			continue
		}
		rows, err := r.store.WatchedObjects(m.t.Context(), fleet.ObjectKey{}, of, "", 10_000)
		require.NoError(m.t, err)
		for _, o := range rows {
			out[string(owner)+"/"+o.ObjectKey.String()] = content(o)
		}
	}
	return out
}

func (m *mesh) held(of fleet.RegionName) map[string]string {
	m.t.Helper()
	out := map[string]string{}
	rows, err := m.regions[of].store.WatchedCopies(m.t.Context(), fleet.CopyKey{}, "", "", 10_000)
	require.NoError(m.t, err)
	for _, o := range rows {
		out[string(o.Region)+"/"+o.ObjectKey.String()] = content(o)
	}
	return out
}

func content(o fleet.Object) string {
	labels, _ := json.Marshal(o.Labels)
	return fmt.Sprintf("%s %s %d %d %s %s %s %s %s", o.UID, o.Project, o.Generation, o.Version.Number, labels, o.Spec, o.Syncing,
		o.CreatedAt.UTC().Format(time.RFC3339Nano), o.UpdatedAt.UTC().Format(time.RFC3339Nano))
}

// settle waits until every region has what it is to have, byte for byte, and nothing else.
func (m *mesh) settle(what string) {
	m.t.Helper()
	for name := range m.regions {
		deadline := time.Now().Add(patience)
		for {
			for each := range m.regions {
				m.apply(each)
			}
			owed, held := m.owed(name), m.held(name)
			if maps.Equal(owed, held) {
				break
			}
			if time.Now().After(deadline) {
				require.Equal(m.t, owed, held, "%s: what %s is to have, and has", what, name)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
}

func (m *mesh) declare(region fleet.RegionName, key fleet.ObjectKey, project string, labels map[string]string, spec any) {
	m.t.Helper()
	_, err := m.regions[region].store.Declare(m.t.Context(), postgres.Write{
		Request: postgres.Request{Actor: "test", Project: fleet.ProjectName(project)}, Key: key, Region: region, Labels: labels,
	}, spec)
	switch {
	case err == nil:
	case fleet.KindOf(err) == fleet.Conflict:
		require.ErrorContains(m.t, err, "several regions have project/")
	default: // without its project, or where the policy does not enable this region any more
		require.Contains(m.t, []fleet.Kind{fleet.NotFound, fleet.IllegalState}, fleet.KindOf(err), "%v", err)
	}
}

func (m *mesh) remove(region fleet.RegionName, key fleet.ObjectKey) {
	m.t.Helper()
	_, err := m.regions[region].store.DeleteDeclared(m.t.Context(), postgres.Write{Request: postgres.Request{Actor: "test"}, Key: key, Region: region})
	if err != nil && fleet.KindOf(err) != fleet.NotFound { // a project with pools
		require.Equal(m.t, fleet.IllegalState, fleet.KindOf(err), "%v", err)
	}
}

func (m *mesh) healAll() {
	for a := range m.regions {
		for b := range m.regions {
			m.setCut([2]fleet.RegionName{a, b}, false)
		}
	}
}

// step is one of the writes that regions make at random, or a link that is cut or healed.
func (m *mesh) step(random *rand.Rand) {
	m.t.Helper()
	names := slices.Sorted(maps.Keys(m.regions))
	pick := func() fleet.RegionName { return names[random.IntN(len(names))] }
	owner, of := pick(), pick()
	name := fmt.Sprintf("%s-%d", of, random.IntN(3)) // often a project of another region, of which there may be a copy
	if random.IntN(3) == 0 {
		of, name = owner, "p" // of which each region has one
	}
	pool := fleet.ObjectKey{Kind: fleet.KindPool, Name: fmt.Sprintf("%s-pool-%d", name, random.IntN(3))}
	switch random.IntN(8) {
	case 0, 1:
		m.declare(owner, pool, name, map[string]string{"v": fmt.Sprint(random.IntN(1000))}, fleet.PoolSpec{MaxReplicas: random.IntN(4)})
	case 2, 3:
		if of == owner {
			m.changePolicy(random, owner, name)
		}
	case 4:
		m.remove(owner, pool)
	case 5:
		if of == owner {
			m.remove(owner, fleet.ProjectKey(fleet.ProjectName(name)))
		}
	case 6:
		m.setCut([2]fleet.RegionName{owner, pick()}, true)
	case 7:
		m.setCut([2]fleet.RegionName{owner, pick()}, false)
	}
}

// changePolicy shares a project with some others, and may apply that at once.
func (m *mesh) changePolicy(random *rand.Rand, owner fleet.RegionName, name string) {
	m.t.Helper()
	regions := []string{string(owner)}
	for _, other := range slices.Sorted(maps.Keys(m.regions)) {
		if other != owner && random.IntN(2) == 0 {
			regions = append(regions, string(other))
		}
	}
	m.share(owner, name, regions...)
	if random.IntN(2) == 0 {
		m.apply(owner)
	}
}

// M14, M16, M18, M20, M27, M29, M31, M35, M40, X24: regions whose clocks differ by hours, and that write, share, take back, delete and
// lose their links at random, have in the end what they are to have, and nothing else.
func TestRegionsShare(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us", "ap")
	m.skew("us", "-1 hour")
	m.skew("ap", "1 hour")
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	defer func() { cancel(); wait() }()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 5 {
		for range 40 {
			m.step(random)
		}
		m.healAll()
		m.settle(fmt.Sprintf("round %d", round))
	}
	applied := int64(0)
	for name, r := range m.regions {
		streams, err := r.store.Streams(t.Context())
		require.NoError(t, err)
		for _, s := range streams {
			require.Eventually(t, func() bool { return len(m.setAside(name, s.Peer)) == 0 }, patience, 10*time.Millisecond, "%s follows %s", name, s.Peer)
			applied += s.Applied
		}
	}
	require.Greater(t, applied, int64(5), "something was shared; states that were replaced at once are left out")
}

// sharedLine is two regions that follow each other and share a project of eu.
func sharedLine(t *testing.T) *mesh {
	t.Helper()
	m := newMesh(t, "eu", "us")
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	t.Cleanup(func() { cancel(); wait() })
	m.share("eu", "line", "eu", "us")
	m.settle("the project is shared")
	return m
}

// M4, M5: what a region declared in the project of which it had the only copy follows its own project of that name, once it has one.
func TestOwnAfterACopy(t *testing.T) {
	t.Parallel()
	m := sharedLine(t)
	us, pool := m.regions["us"].store, fleet.ObjectKey{Kind: fleet.KindPool, Name: "small"}
	w := postgres.Write{Request: postgres.Request{Actor: "test", Project: "line"}, Key: pool}
	_, err := us.Declare(t.Context(), w, fleet.PoolSpec{})
	require.NoError(t, err)
	m.settle("its pool is where eu's policy says")
	has := func() []string {
		o, err := us.GetObject(t.Context(), pool)
		require.NoError(t, err)
		return o.SyncingNow().Regions
	}
	require.Equal(t, []string{"eu", "us"}, has())
	w.Key, w.Region = fleet.ProjectKey("line"), "us"
	_, err = us.Declare(t.Context(), w, fleet.ProjectSpec{})
	require.NoError(t, err)
	m.apply("us")
	require.Equal(t, []string{"us"}, has())
	m.settle("us's own project has no policy")
	require.Empty(t, m.held("eu"))
}

// M29, M41: a project is not deleted while another region has something in it, as far as that is known.
func TestDeleteWithOthersObjects(t *testing.T) {
	t.Parallel()
	m := sharedLine(t)
	pool := fleet.ObjectKey{Kind: fleet.KindPool, Name: "small"}
	w := postgres.Write{Request: postgres.Request{Actor: "test", Project: "line"}, Key: pool}
	_, err := m.regions["us"].store.Declare(t.Context(), w, fleet.PoolSpec{})
	require.NoError(t, err)
	m.settle("eu has us's pool")
	w.Key = fleet.ProjectKey("line")
	_, err = m.regions["eu"].store.DeleteDeclared(t.Context(), w)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	require.ErrorContains(t, err, "still has 1 pools")
	m.remove("us", pool)
	m.settle("the pool is gone")
	_, err = m.regions["eu"].store.DeleteDeclared(t.Context(), w)
	require.NoError(t, err)
}

// M31, X23: a turn that was replaced writes nothing.
func TestStreamClaims(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	us := m.regions["us"].store
	old, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	newer, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}})
	require.NoError(t, err)
	set := fleet.CopySet{Claim: old, Place: &fleet.StreamPlace{Position: "there"}, Changes: []fleet.CopyChange{{
		Key:     fleet.CopyKey{Region: "eu", ObjectKey: fleet.ObjectKey{Kind: fleet.KindProject, Name: "one"}},
		Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 7},
		Object: &fleet.Object{
			ObjectKey: fleet.ObjectKey{Kind: fleet.KindProject, Name: "one"}, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one",
			Generation: 1, Spec: json.RawMessage(`{}`), Syncing: syncing, CreatedBy: "test",
		},
	}}}
	_, err = us.ApplyCopies(t.Context(), set)
	require.Equal(t, fleet.Stale, fleet.KindOf(err))
	_, err = us.SeeStream(t.Context(), old, -1)
	require.Equal(t, fleet.Stale, fleet.KindOf(err))
	require.Empty(t, m.held("us"))
	set.Claim = newer
	done, err := us.ApplyCopies(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, fleet.CopiesApplied{Written: 1}, done)
	at, err := us.SeeStream(t.Context(), newer, -1)
	require.NoError(t, err)
	require.Equal(t, *set.Place, at)
	done, err = us.ApplyCopies(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, fleet.CopiesApplied{Kept: 1}, done, "the same again changes nothing")
}

// M16: what a peer does not own, or says wrongly, is set aside, and holds up nothing else.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	us := m.regions["us"].store
	claim, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	change := func(region fleet.RegionName, name, owner string) fleet.CopyChange {
		syncing, err := json.Marshal(fleet.Syncing{OwningRegion: owner, Regions: []string{owner, "us"}})
		require.NoError(t, err)
		key := fleet.ObjectKey{Kind: fleet.KindProject, Name: name}
		return fleet.CopyChange{
			Key: fleet.CopyKey{Region: region, ObjectKey: key}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 7},
			Object: &fleet.Object{
				ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one", Generation: 1, Spec: json.RawMessage(`{}`),
				Syncing: syncing, CreatedBy: "test",
			},
		}
	}
	nonsense, void := change("eu", "a\x00b", "eu"), change("eu", "void", "eu")
	void.Object.Spec = json.RawMessage(`{"a":"\u0000"}`)
	done, err := us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{
		change("eu", "good", "eu"), change("ap", "foreign", "ap"), change("us", "mine", "us"), nonsense, void,
	}})
	require.NoError(t, err)
	require.Equal(t, fleet.CopiesApplied{Written: 1, Refused: 4}, done)
	aside, err := us.Quarantined(t.Context(), "eu", fleet.CopyKey{}, 10)
	require.NoError(t, err)
	var words []string
	for _, a := range aside {
		words = append(words, a.Key.String()+" "+a.Reason)
	}
	require.ElementsMatch(t, []string{
		"ap/project/foreign not_its_owner", "us/project/mine own_object", `eu/project/"a\x00b" malformed`, "eu/project/void malformed",
	}, words)
	require.Len(t, m.held("us"), 1)
	void.Object.Spec, void.Version.Number = json.RawMessage(`{}`), 8
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{void}})
	require.NoError(t, err)
	aside, err = us.Quarantined(t.Context(), "eu", fleet.CopyKey{}, 10)
	require.NoError(t, err)
	require.Len(t, aside, 3, "what is mended is set aside no more")
}

// M31, M47: to who watches copies, the end of a copy is newer than all that it was, whatever numbers this region's own events have.
func TestWatchedCopies(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	us := m.regions["us"].store
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(chan api.WatchLine, 100)
	s := &watch.Stream{
		Source: us, Reader: watch.NewReader(us, 10*time.Millisecond), Filter: watch.Filter{Owner: "eu"}, Self: "us",
		Snapshots: make(chan struct{}, 1), Beat: time.Hour,
		View: func(o fleet.Object) api.Object { return api.Object{Name: o.Name} },
		Send: func(all []api.WatchLine) error {
			for _, l := range all {
				if l.Object != nil || l.Gone != nil {
					lines <- l
				}
			}
			return nil
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, "", "") }()
	defer func() { cancel(); require.ErrorIs(t, <-ended, context.Canceled) }()
	next := func() api.WatchLine {
		select {
		case l := <-lines:
			return l
		case <-time.After(patience):
			t.Fatal("no line")
			return api.WatchLine{}
		}
	}
	claim, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}})
	require.NoError(t, err)
	change := fleet.CopyChange{
		Key:     fleet.CopyKey{Region: "eu", ObjectKey: fleet.ProjectKey("one")},
		Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 70_000},
		Object: &fleet.Object{
			ObjectKey: fleet.ProjectKey("one"), UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one",
			Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 70_000}, Generation: 1, Spec: json.RawMessage(`{}`), Syncing: syncing, CreatedBy: "test",
		},
	}
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{change}})
	require.NoError(t, err)
	shown := next()
	require.Equal(t, "one", shown.Object.Name)
	require.EqualValues(t, 70_000, shown.Number)
	change.Object, change.End, change.Version.Number = nil, fleet.CopyDeleted, 70_001
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{change}})
	require.NoError(t, err)
	last := next()
	for last.Object != nil { // the same state may come once more
		last = next()
	}
	require.Equal(t, "one", last.Gone.Name)
	require.EqualValues(t, 70_001, last.Number)
	require.EqualValues(t, 1, last.OwnerEpoch)
}
