package region

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// templateMesh is regions that share templates. What a region gets of another one's parts passes through meddle.
type templateMesh struct {
	*mesh
	parts map[fleet.RegionName]*httptest.Server

	mu     sync.Mutex
	meddle func(req *http.Request, resp *http.Response) error
	turn   time.Duration
	silent bool     // no request is sent
	asked  []string // path and range of each request for a body
	got    int64    // bytes of bodies
}

func newTemplateMesh(t *testing.T, names ...fleet.RegionName) *templateMesh {
	t.Helper()
	m := &templateMesh{mesh: newMesh(t, names...), parts: map[fleet.RegionName]*httptest.Server{}, turn: 3 * time.Second}
	for name, r := range m.regions {
		h, err := httpapi.New(httpapi.Deps{
			Store: r.store, Waker: noWaker{}, NodeStarted: func(context.Context, fleet.NodeName) error { return nil },
			Flatten: compose.NewBudget(1 << 20), Region: string(name), PendingTTL: time.Minute, OperationLimit: time.Minute,
			Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		mux := http.NewServeMux()
		shareParts(h, mux, func(r *http.Request) fleet.RegionName { return fleet.RegionName(r.Header.Get("Peer")) })
		m.parts[name] = httptest.NewServer(mux)
		t.Cleanup(m.parts[name].Close)
	}
	return m
}

// sender is how a region reaches the parts of the others.
func (m *templateMesh) sender(self fleet.RegionName) peerParts {
	return peerParts{func(ctx context.Context, peer fleet.RegionName, path string, header http.Header) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.parts[peer].URL+path, nil)
		if err != nil {
			return nil, err
		}
		if header != nil {
			req.Header = header.Clone()
		}
		m.mu.Lock()
		silent := m.silent
		m.mu.Unlock()
		if silent {
			return nil, io.ErrUnexpectedEOF
		}
		req.Header.Set("Peer", string(self))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		meddle := m.meddle
		if strings.Contains(path, "/bodies/") {
			m.asked = append(m.asked, header.Get("Range"))
			resp.Body = &counted{resp.Body, m}
		}
		m.mu.Unlock()
		if meddle != nil {
			if err := meddle(req, resp); err != nil {
				_ = resp.Body.Close()
				return nil, err
			}
		}
		return resp, nil
	}}
}

type counted struct {
	io.ReadCloser
	m *templateMesh
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.m.mu.Lock()
	c.m.got += int64(n)
	c.m.mu.Unlock()
	return n, err
}

func (m *templateMesh) meddling(f func(req *http.Request, resp *http.Response) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meddle = f
}

// silence has no request for parts reach a region.
func (m *templateMesh) silence(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = on
}

// runs has regions follow all others until the test ends.
func (m *templateMesh) runs(selves ...fleet.RegionName) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, self := range selves {
		f := &watch.Follower{
			Now: time.Now, Store: m.regions[self].store, Peers: from{m.mesh, self}, Waiting: m.regions[self].store, Parts: m.sender(self), MaxBody: 32 << 20,
			Log: slog.New(slog.DiscardHandler), Turn: m.turn, Beat: 100 * time.Millisecond, Silence: 20 * time.Second, Retry: 50 * time.Millisecond,
			Rival: func(_ fleet.RegionName, n int) { m.rivals.Add(int64(n)) },
		}
		for peer := range m.regions {
			if peer == self {
				continue
			}
			all.Go(func() { m.follows(ctx, f, self, peer) })
		}
	}
	m.t.Cleanup(func() { cancel(); all.Wait() })
}

// hurry has what waits in a region tried again at once.
func (m *templateMesh) hurry(region fleet.RegionName) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(30 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = m.regions[region].raw.Exec(ctx, `UPDATE copies_waiting SET retry_at = now(), failures = 1 WHERE failures > 0 AND retry_at > now()`)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	m.t.Cleanup(func() { cancel(); wait.Wait() })
}

// template declares one whose base is a text of some length, and gives its base.
func (m *templateMesh) template(region fleet.RegionName, project, name string, length int, compositions ...fleet.TemplateName) fleet.Content {
	m.t.Helper()
	text := []byte(`{"` + name + `":"`)
	for random := rand.New(rand.NewPCG(rand.Uint64(), 0)); len(text) < length; {
		text = fmt.Appendf(text, "%016x", random.Uint64())
	}
	text = append(text, `"}`...)
	hash, err := m.regions[region].store.PutBody(m.t.Context(), fleet.ProjectName(project), text)
	require.NoError(m.t, err)
	spec := fleet.TemplateSpec{Base: fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(text))}, Secrets: []string{"/" + name}}
	for _, c := range compositions {
		spec.Compositions = append(spec.Compositions, fleet.TemplatePin{Name: c})
	}
	_, err = m.regions[region].store.Declare(m.t.Context(), postgres.Write{
		Request: postgres.Request{Actor: "test", Project: fleet.ProjectName(project)}, Key: fleet.TemplateKey(name),
	}, spec)
	require.NoError(m.t, err)
	return spec.Base
}

// same compares a body in two regions, byte for byte.
func (m *templateMesh) same(h fleet.Hash, regions ...fleet.RegionName) {
	m.t.Helper()
	var all [][]byte
	for _, r := range regions {
		body, err := m.regions[r].store.OpenBody(m.t.Context(), h)
		require.NoError(m.t, err, r)
		text, err := io.ReadAll(body)
		require.NoError(m.t, err, r)
		all = append(all, text)
	}
	for _, text := range all[1:] {
		require.True(m.t, bytes.Equal(all[0], text))
	}
}

func (m *templateMesh) waiting(region fleet.RegionName) (n int64) {
	m.t.Helper()
	streams, err := m.regions[region].store.Streams(m.t.Context())
	require.NoError(m.t, err)
	for _, s := range streams {
		n += s.Waiting
	}
	return n
}

func (m *templateMesh) eventually(what string, so func() bool) {
	m.t.Helper()
	require.Eventually(m.t, so, patience, 10*time.Millisecond, what)
}

// generation is that of a copied template here, 0 for none.
func (m *templateMesh) generation(region fleet.RegionName, name fleet.TemplateName) int64 {
	m.t.Helper()
	_, o, err := m.regions[region].store.Template(m.t.Context(), name)
	if fleet.KindOf(err) == fleet.NotFound || fleet.KindOf(err) == fleet.IllegalState {
		return 0
	}
	require.NoError(m.t, err)
	return o.Generation
}

// M18, M20, M26, M28, M40: a template appears once all that it is composed of has arrived, also from projects that are not shared
// and from third regions, and is composed of exactly that.
func TestTemplatesArrive(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us", "ap")
	m.runs("us", "ap", "eu")
	m.share("ap", "far", "ap", "eu")
	m.share("eu", "shop", "eu", "us")
	m.declare("eu", fleet.ProjectKey("inner"), "inner", nil, fleet.ProjectSpec{})
	deepest := m.template("eu", "inner", "deepest", 100)
	inner := m.template("eu", "inner", "base", 5<<20, "deepest")
	cell := m.template("eu", "shop", "cell", 1000, "base")
	m.settle("the first generation")
	us := m.regions["us"].store
	require.EqualValues(t, 1, m.generation("us", "cell"), "the plain name means the only copy")
	spec, generation, err := us.TemplateSpec(t.Context(), "eu/cell", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, generation)
	require.Equal(t, []fleet.TemplatePin{{Name: "eu/base", Generation: 1}}, spec.Compositions)
	under, _, err := us.TemplateSpec(t.Context(), "eu/base", 1)
	require.NoError(t, err)
	require.Equal(t, []fleet.TemplatePin{{Name: "eu/deepest", Generation: 1}}, under.Compositions)
	for _, b := range []fleet.Content{deepest, inner, cell} {
		m.same(b.Hash, "eu", "us")
	}
	require.Zero(t, m.generation("us", "eu/base"), "a part is no copy")
	_, err = us.BodySize(t.Context(), "default", cell.Hash)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "no project may use a body of a peer by its hash")
	require.Zero(t, m.generation("ap", "cell"))
	_, err = m.regions["ap"].store.OpenBody(t.Context(), cell.Hash)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "nothing goes to a region that the policy does not name")

	m.template("eu", "inner", "base", 2000)
	again := m.template("eu", "shop", "cell", 2000, "base")
	m.settle("the second generation")
	m.same(again.Hash, "eu", "us")
	old, _, err := us.TemplateSpec(t.Context(), "eu/cell", 1)
	require.NoError(t, err, "what was pinned stays")
	require.Equal(t, spec, old)

	m.template("ap", "far", "far", 3000)
	m.eventually("eu has far", func() bool { return m.generation("eu", "far") == 1 })
	m.template("eu", "shop", "cell", 100, "ap/far", "base")
	m.settle("a composition of another region's template")
	spec, _, err = us.TemplateSpec(t.Context(), "eu/cell", 0)
	require.NoError(t, err)
	require.Equal(t, []fleet.TemplatePin{{Name: "eu/ap/far", Generation: 1}, {Name: "eu/base", Generation: 2}}, spec.Compositions)
	far, _, err := us.TemplateSpec(t.Context(), "eu/ap/far", 1)
	require.NoError(t, err)
	m.same(far.Base.Hash, "ap", "eu", "us")
	require.Zero(t, m.waiting("us"))
}

// M19, M40: a body that is cut continues where it was, and is never sent twice.
func TestBodiesResume(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us")
	m.share("eu", "shop", "eu", "us")
	body := m.template("eu", "shop", "cell", 11<<20)
	cuts := 0
	m.meddling(func(_ *http.Request, resp *http.Response) error {
		if cuts < 4 {
			cuts++
			resp.Body = &cutBody{resp.Body, 1<<20 + 1000*int64(cuts)}
		}
		return nil
	})
	m.turn = time.Hour // the end of a turn cuts too
	m.runs("us")
	m.settle("a body through four cuts")
	m.same(body.Hash, "eu", "us")
	require.Equal(t, 4, cuts)
	require.Greater(t, len(m.asked), 4)
	for i := 1; i < 4; i++ {
		require.Contains(t, m.asked[i], fmt.Sprintf("bytes=%d-", i<<20), "it continues after the last whole chunk")
	}
	require.Less(t, m.got, body.Size+4*(64<<10), "only a part of a chunk is sent again at each cut")
}

// cutBody breaks after some bytes.
type cutBody struct {
	io.ReadCloser
	left int64
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// M26, M31: an owner that sends wrong bytes, too few, too many or none has nothing applied, holds up nothing else, and is asked
// again.
func TestForgedParts(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us")
	m.runs("us")
	m.hurry("us")
	m.share("eu", "shop", "eu", "us")
	m.declare("eu", fleet.ProjectKey("inner"), "inner", nil, fleet.ProjectSpec{})
	body := func(change func(text []byte) []byte) func(*http.Request, *http.Response) error {
		return func(req *http.Request, resp *http.Response) error {
			if !strings.Contains(req.URL.Path, "/bodies/") {
				return nil
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(change(text)))
			return err
		}
	}
	answer := func(text string) func(*http.Request, *http.Response) error {
		return func(req *http.Request, resp *http.Response) error {
			if strings.HasSuffix(req.URL.Path, "/generation") {
				resp.Body = io.NopCloser(strings.NewReader(text))
			}
			return nil
		}
	}
	for i, forged := range []struct {
		name string
		by   func(*http.Request, *http.Response) error
	}{
		{"wrong bytes", body(func(text []byte) []byte { text[len(text)/2] ^= 1; return text })},
		{"truncated", body(func(text []byte) []byte { return text[:len(text)-1] })},
		{"oversized", body(func(text []byte) []byte { return append(text, 'x') })},
		{"empty", body(func([]byte) []byte { return nil })},
		{"no answer", func(*http.Request, *http.Response) error { return io.ErrUnexpectedEOF }},
		{"not found, but not by the peer", func(_ *http.Request, resp *http.Response) error {
			resp.StatusCode, resp.Header = http.StatusNotFound, http.Header{"Content-Type": {"text/plain"}}
			return nil
		}},
		{"another part", func(_ *http.Request, resp *http.Response) error {
			resp.Header.Set("Content-Range", "bytes 1-2/3")
			resp.Header.Del("Content-Type")
			if strings.Contains(resp.Request.URL.Path, "/bodies/") {
				return nil
			}
			return io.ErrUnexpectedEOF
		}},
		{"a generation of broken JSON", answer(`{`)},
		{"a generation without a base", answer(`{}`)},
		{"a generation with a bad pin", answer(`{"base":{"hash":"` + strings.Repeat("a", 64) + `"},"compositions":[{"name":"../x","generation":1}]}`)},
		{"a generation of itself", func(req *http.Request, resp *http.Response) error {
			if !strings.HasSuffix(req.URL.Path, "/generation") {
				return nil
			}
			text, err := io.ReadAll(resp.Body)
			itself := fmt.Sprintf(`{"compositions":[{"name":%q,"generation":1}],`, req.URL.Query().Get("template"))
			resp.Body = io.NopCloser(strings.NewReader(itself + string(text[1:])))
			return err
		}},
	} {
		m.meddling(forged.by)
		name, base := fmt.Sprintf("cell-%d", i), fmt.Sprintf("base-%d", i)
		m.template("eu", "inner", base, 1000)
		m.template("eu", "shop", name, 2<<20, fleet.TemplateName(base))
		pool := fleet.ObjectKey{Kind: fleet.KindPool, Name: fmt.Sprintf("pool-%d", i)}
		m.declare("eu", pool, "shop", nil, fleet.PoolSpec{MaxReplicas: i})
		m.eventually(forged.name+": the pool passes what waits", func() bool {
			_, err := m.regions["us"].store.GetCopy(t.Context(), fleet.CopyKey{Region: "eu", ObjectKey: pool})
			return err == nil
		})
		m.eventually(forged.name+": it was tried", func() bool {
			var failures int
			err := m.regions["us"].raw.QueryRow(t.Context(), `SELECT failures FROM copies_waiting WHERE name = $1`, name).Scan(&failures)
			return err == nil && failures > 0
		})
		require.Zero(t, m.generation("us", fleet.CopiedTemplate("eu", name)), forged.name)
		m.meddling(nil)
		m.settle(forged.name)
		require.Zero(t, m.waiting("us"), forged.name)
	}
}

// M27, M29, X28: a peer gets what its copies are composed of; anything else is not found, whether it exists or not.
func TestPartsPermission(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us", "ap")
	m.share("eu", "shop", "eu", "us")
	m.share("eu", "other", "eu", "ap")
	m.declare("eu", fleet.ProjectKey("inner"), "inner", nil, fleet.ProjectSpec{})
	old := m.template("eu", "inner", "base", 100)
	base := m.template("eu", "inner", "base", 100)
	before := m.template("eu", "shop", "cell", 100)
	cell := m.template("eu", "shop", "cell", 100, "base")
	others := m.template("eu", "other", "others", 100)
	private, err := m.regions["eu"].store.PutBody(t.Context(), "shop", []byte(`{"private":true}`))
	require.NoError(t, err)
	at := func(name string) fleet.CopyKey {
		return fleet.CopyKey{Region: "eu", ObjectKey: fleet.TemplateKey(name)}
	}
	body := func(as fleet.RegionName, of string, h fleet.Hash, size int64) error {
		from, err := m.sender(as).Body(t.Context(), "eu", at(of), h, 0, size)
		if err == nil {
			_ = from.Close()
		}
		return err
	}
	generation := func(as fleet.RegionName, of string, name fleet.TemplateName, n int64) error {
		_, err := m.sender(as).Generation(t.Context(), "eu", at(of), fleet.TemplatePin{Name: name, Generation: n})
		return err
	}
	require.NoError(t, body("us", "cell", cell.Hash, 100))
	require.NoError(t, body("us", "cell", base.Hash, 100))
	require.NoError(t, generation("us", "cell", "base", 2))
	require.NoError(t, body("ap", "others", others.Hash, 100))
	nothing := body("us", "cell", fleet.Hash(strings.Repeat("0", 64)), 1)
	require.Equal(t, fleet.NotFound, fleet.KindOf(nothing))
	for what, err := range map[string]error{
		"a template of others":                body("us", "others", others.Hash, 100),
		"a body of others":                    body("us", "cell", others.Hash, 100),
		"a body that no template names":       body("us", "cell", private, 1),
		"an older body of a part":             body("us", "cell", old.Hash, 100),
		"an older body":                       body("us", "cell", before.Hash, 100),
		"an older generation":                 generation("us", "cell", "cell", 1),
		"an older generation of a part":       generation("us", "cell", "base", 1),
		"a template that is not shared":       generation("us", "base", "base", 2),
		"a part of another's":                 generation("ap", "cell", "base", 2),
		"as the region itself":                generation("eu", "cell", "base", 2),
		"without a name":                      generation("", "cell", "base", 2),
		"a template that does not exist":      generation("us", "none", "base", 2),
		"with an invalid name":                generation("us", "a b", "base", 2),
		"a generation that does not exist":    generation("us", "cell", "base", 7),
		"a generation of an unknown template": generation("us", "cell", "x", 1),
	} {
		require.Equal(t, nothing, err, what)
	}
}

// M26, M29, M31: of an object only the newest state waits, and none once it is gone or its owner has a newer one.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us")
	m.silence(true)
	m.runs("us")
	m.hurry("us")
	m.share("eu", "shop", "eu", "us")
	m.template("eu", "shop", "cell", 100)
	m.eventually("it waits", func() bool { return m.waiting("us") == 1 })
	number := func() (n int64) {
		_ = m.regions["us"].raw.QueryRow(t.Context(), `SELECT number FROM copies_waiting`).Scan(&n) // 0 if none waits
		return n
	}
	first := number()
	m.template("eu", "shop", "cell", 100)
	m.eventually("the newer one waits", func() bool { return number() > first })
	require.EqualValues(t, 1, m.waiting("us"))
	m.remove("eu", fleet.TemplateKey("cell"))
	m.eventually("it is gone", func() bool { return m.waiting("us") == 0 })
	require.Empty(t, m.held("us")["eu/template/cell"])

	m.template("eu", "shop", "next", 100)
	m.eventually("it waits", func() bool { return m.waiting("us") == 1 })
	m.setCut([2]fleet.RegionName{"us", "eu"}, true)
	m.template("eu", "shop", "next", 200)
	m.silence(false)
	m.eventually("the owner has another", func() bool { return m.waiting("us") == 0 })
	require.Zero(t, m.generation("us", "next"))
	m.setCut([2]fleet.RegionName{"us", "eu"}, false)
	m.settle("the newer one followed")

	m.silence(true)
	m.template("eu", "shop", "last", 100)
	m.eventually("it waits", func() bool { return m.waiting("us") == 1 })
	m.share("eu", "shop", "eu")
	m.apply("eu")
	m.eventually("its policy names this region no more", func() bool { return m.waiting("us") == 0 })
	m.settle("nothing is shared")
}

// sharedTemplate is a template of eu as it sends it, and its base.
func sharedTemplate(t *testing.T, number int64) (fleet.CopyChange, []byte) {
	t.Helper()
	base := fmt.Appendf(nil, `{"v":%d}`, number)
	spec, err := json.Marshal(fleet.TemplateSpec{Base: fleet.Content{Kind: fleet.ContentJSON, Hash: compose.ContentOf(base).Hash, Size: int64(len(base))}})
	require.NoError(t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}})
	require.NoError(t, err)
	key := fleet.TemplateKey("press")
	return fleet.CopyChange{
		Key: fleet.CopyKey{Region: "eu", ObjectKey: key}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: number},
		Object: &fleet.Object{
			ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one", Generation: number, Spec: spec, Syncing: syncing, CreatedBy: "test",
		},
	}, base
}

// M26, M31: a state whose parts arrive counts only if it still waits, as it does not after a restore of its owner. The owner's answer
// about the state that is here counts also when its parts had to arrive first.
func TestArrives(t *testing.T) {
	t.Parallel()
	us := newMesh(t, "eu", "us").regions["us"].store
	claim, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	apply := func(c fleet.CopyChange, arrived bool) fleet.CopiesApplied {
		done, err := us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{c}, Arrived: arrived})
		require.NoError(t, err)
		return done
	}
	wait := func(number int64, seen *fleet.CopyVersion) fleet.CopyChange {
		c, base := sharedTemplate(t, number)
		c.Seen = seen
		require.Equal(t, fleet.CopiesApplied{Waiting: 1}, apply(c, false))
		_, err := us.PutBody(t.Context(), fleet.DefaultProject, base)
		require.NoError(t, err)
		due, err := us.DueCopies(t.Context(), "eu", 1)
		require.NoError(t, err)
		return due[0]
	}
	late := wait(7, nil)
	require.NoError(t, us.DropCopy(t.Context(), "eu", late))
	require.Equal(t, fleet.CopiesApplied{Kept: 1}, apply(late, true))
	require.Equal(t, fleet.CopiesApplied{Written: 1}, apply(wait(8, nil), true))
	require.Equal(t, fleet.CopiesApplied{Written: 1}, apply(wait(6, &fleet.CopyVersion{OwnerEpoch: 1, Number: 8}), true), "its restored owner has an older one")
	answered, _ := sharedTemplate(t, 5)
	answered.Seen = &fleet.CopyVersion{OwnerEpoch: 1, Number: 8}
	require.Equal(t, fleet.CopiesApplied{Kept: 1}, apply(answered, false), "something else is here by now")
}

// M31: what a state that waits is composed of is not collected.
func TestWaitingKeepsBodies(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us")
	m.runs("us")
	m.share("eu", "shop", "eu", "us")
	m.settle("the project")
	m.meddling(func(req *http.Request, _ *http.Response) error {
		if strings.HasSuffix(req.URL.Path, "/generation") {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	m.declare("eu", fleet.ProjectKey("inner"), "inner", nil, fleet.ProjectSpec{})
	m.template("eu", "inner", "base", 100)
	cell := m.template("eu", "shop", "cell", 100, "base")
	us := m.regions["us"]
	m.eventually("its body arrives", func() bool {
		_, err := us.store.OpenBody(t.Context(), cell.Hash)
		return err == nil
	})
	_, err := us.raw.Exec(t.Context(), `UPDATE bodies SET used_at = now() - interval '2 days'`)
	require.NoError(t, err)
	_, _, err = us.store.CollectPage(t.Context(), fleet.CollectBodies, fleet.DefaultRetention())
	require.NoError(t, err)
	m.same(cell.Hash, "eu", "us")
}

// M29, M35: a template whose copy is removed stays for what pins it, and is not there for anything new; once nothing pins it, it
// is collected with its bodies.
func TestRemovedTemplates(t *testing.T) {
	t.Parallel()
	m := newTemplateMesh(t, "eu", "us")
	m.runs("us")
	m.share("eu", "shop", "eu", "us")
	base := m.template("eu", "shop", "base", 100)
	cell := m.template("eu", "shop", "cell", 100, "base")
	m.settle("shared")
	us := m.regions["us"]
	local := m.template("us", "default", "local", 100, "eu/cell")
	_, err := us.raw.Exec(t.Context(), `INSERT INTO objects (kind, scope, name, project, labels, generation, resource_version, spec, syncing, created_by)
		VALUES ('fleet', '', 'f', 'default', '{}', 1, 1, '{"change": {"template": "eu/cell", "templateGeneration": 1}}', '{}', 'test')`)
	require.NoError(t, err)
	collect := func() {
		for _, table := range []string{"bodies", "template_generations"} {
			_, err := us.raw.Exec(t.Context(), `UPDATE `+table+` SET used_at = now() - interval '2 days'`)
			require.NoError(t, err)
		}
		for _, kind := range []fleet.CollectedKind{fleet.CollectGenerations, fleet.CollectBodies} {
			_, _, err := us.store.CollectPage(t.Context(), kind, fleet.DefaultRetention())
			require.NoError(t, err)
		}
	}
	collect()
	m.share("eu", "shop", "eu")
	m.settle("taken back")
	_, _, err = us.store.Template(t.Context(), "cell")
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "%v", err)
	kept, err := us.store.KeptGenerations(t.Context())
	require.NoError(t, err)
	require.Len(t, kept["eu"], 1)
	require.Equal(t, fleet.TemplatePin{Name: "eu/cell", Generation: 1}, kept["eu"][0].TemplatePin)
	require.EqualValues(t, 2, kept["eu"][0].UsedBy)
	collect()
	for _, b := range []fleet.Content{base, cell, local} {
		m.same(b.Hash, "us")
	}
	_, err = us.store.Declare(t.Context(), postgres.Write{
		Request: postgres.Request{Actor: "test", Project: "default"}, Key: fleet.TemplateKey("more"),
	}, fleet.TemplateSpec{Base: local, Compositions: []fleet.TemplatePin{{Name: "eu/cell"}}})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "it takes no new pins")

	_, err = us.raw.Exec(t.Context(), `DELETE FROM objects WHERE kind IN ('fleet', 'template')`)
	require.NoError(t, err)
	collect()
	_, _, err = us.store.TemplateSpec(t.Context(), "eu/cell", 1)
	require.NoError(t, err, "a generation of this region merges it")
	_, err = us.raw.Exec(t.Context(), `DELETE FROM template_generations WHERE name = 'local'`)
	require.NoError(t, err)
	collect()
	_, _, err = us.store.TemplateSpec(t.Context(), "eu/cell", 1)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	collect() // what it was composed of
	collect()
	for _, b := range []fleet.Content{base, cell} {
		_, err := us.store.OpenBody(t.Context(), b.Hash)
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	}
	m.share("eu", "shop", "eu", "us")
	m.settle("shared again")
	m.same(base.Hash, "eu", "us")
}
