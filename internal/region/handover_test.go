package region

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

const line = "line-a"

var (
	lineKey = fleet.ProjectKey(line)
	press   = fleet.TemplateKey("press")
)

// handing is a mesh in which holders change their owner.
type handing struct {
	*mesh
	t      *testing.T
	holder fleet.ObjectKey // that is handed over, and whose entity works
}

func newHanding(t *testing.T, names ...fleet.RegionName) *handing {
	t.Helper()
	h, m := newMembers(t, names...)
	m.runs(names...)
	return h
}

// newMembers are regions that do not follow each other yet.
func newMembers(t *testing.T, names ...fleet.RegionName) (*handing, *templateMesh) {
	t.Helper()
	m := newTemplateMesh(t, names...)
	h := &handing{m.mesh, t, lineKey}
	for self, r := range h.regions {
		for i, peer := range names {
			if peer == self {
				continue
			}
			_, err := r.raw.Exec(t.Context(), `INSERT INTO peers (name, public_key, number, admitted_by, admission, address, address_number, address_signature)
				VALUES ($1, decode(lpad(to_hex($2::int), 64, '0'), 'hex'), 1, $1, decode(repeat('00', 64), 'hex'), 'https://' || $1 || ':1', 1, decode(repeat('00', 64), 'hex'))`, string(peer), i+1)
			require.NoError(t, err)
		}
	}
	return h, m
}

// line declares the project in a region, with a template and a pool in it.
func (h *handing) line(owner fleet.RegionName, regions ...string) {
	h.t.Helper()
	h.share(owner, line, regions...)
	require.NoError(h.t, h.template(owner, 1))
	h.declare(owner, fleet.ObjectKey{Kind: fleet.KindPool, Name: string(owner) + "-pool"}, line, nil, fleet.PoolSpec{})
}

func (h *handing) write(key fleet.ObjectKey) postgres.Write {
	return postgres.Write{Request: postgres.Request{Actor: "test", Project: line}, Key: key}
}

// template writes the template in a region, with a label.
func (h *handing) template(in fleet.RegionName, v int) error {
	w := h.write(press)
	w.Labels = map[string]string{"v": fmt.Sprint(v)}
	return h.templateAs(in, w, fmt.Sprintf(`{"v":%d}`, v))
}

// templateAs writes a template with a base.
func (h *handing) templateAs(in fleet.RegionName, w postgres.Write, base string) error {
	hash, err := h.regions[in].store.PutBody(h.t.Context(), line, []byte(base))
	if err != nil {
		return err
	}
	_, err = h.regions[in].store.Declare(h.t.Context(), w, fleet.TemplateSpec{Base: fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(base))}})
	return err
}

func (h *handing) request(in, to fleet.RegionName, force bool) (postgres.Operation, error) {
	return h.regions[in].store.AskHandOver(h.t.Context(), policies.HandOverRequest{
		Request: postgres.Request{Actor: "test", Limit: time.Minute}, Holder: h.holder, To: to, Force: force,
	})
}

// step has the entity of the holder do what it can in a region.
func (h *handing) step(in fleet.RegionName) fleet.PolicyTurn {
	h.t.Helper()
	h.compares(in)
	for {
		turn, err := h.regions[in].store.ApplyPolicyPage(h.t.Context(), fleet.PolicyVisit{Kind: h.holder.Kind, Name: h.holder.Name})
		require.NoError(h.t, err)
		if turn.Done || turn.Waits {
			return turn
		}
	}
}

// compares makes the comparisons that a region wants.
func (h *handing) compares(in fleet.RegionName) {
	h.t.Helper()
	c := &compare.Comparer{Store: h.regions[in].store, Peers: questions{mesh: h.mesh, self: in}}
	for peer := range h.regions {
		if peer == in {
			continue
		}
		for {
			turn, err := c.Page(h.t.Context(), fleet.SyncVisit{Peer: peer, Run: "run"})
			if fleet.KindOf(err) != fleet.Stale {
				require.NoError(h.t, err)
			}
			if turn.Done || turn.Waits != "" {
				break
			}
		}
	}
}

// turn has the entities of some regions work until a condition holds.
func (h *handing) turn(what string, until func() bool, regions ...fleet.RegionName) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !until(); {
		require.True(h.t, time.Now().Before(deadline), "%s\n%s", what, h.dump())
		for _, r := range regions {
			h.step(r)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (h *handing) dump() (out string) {
	for name := range h.regions {
		out += fmt.Sprintf("%s: %v\n", name, h.shared(name))
		for peer := range h.regions {
			out += fmt.Sprintf("  aside from %s: %v\n", peer, h.aside(name, peer))
		}
	}
	return out
}

// aside is what a region set aside of a peer.
func (h *handing) aside(in, peer fleet.RegionName) []copies.SetAside {
	h.t.Helper()
	all, err := h.regions[in].store.Quarantined(h.t.Context(), peer, fleet.CopyKey{}, 10)
	require.NoError(h.t, err)
	return all
}

// here finds an object that a region created, as another one has it.
func (h *handing) here(in, birth fleet.RegionName, key fleet.ObjectKey) (fleet.Object, error) {
	s := h.regions[in].store
	if in == birth {
		return s.GetObject(h.t.Context(), key)
	}
	return s.GetCopy(h.t.Context(), fleet.CopyKey{Region: birth, ObjectKey: key})
}

// owner is who owns an object, as a region knows it, and in which epoch.
func (h *handing) owner(in, birth fleet.RegionName, key fleet.ObjectKey) string {
	o, err := h.here(in, birth, key)
	if err != nil {
		return string(fleet.KindOf(err))
	}
	return fmt.Sprintf("%s %d", o.SyncingNow().OwningRegion, o.Version.OwnerEpoch)
}

// shared is what a region has of the shared objects, with their versions.
func (h *handing) shared(in fleet.RegionName) map[string]string {
	h.t.Helper()
	out := map[string]string{}
	add := func(birth fleet.RegionName, o fleet.Object) {
		if o.Kind.Declared().Shared && o.Name != "default" {
			out[string(birth)+"/"+o.ObjectKey.String()] = fmt.Sprintf("%s epoch %d", content(o), o.Version.OwnerEpoch)
		}
	}
	own, err := h.regions[in].store.WatchedObjects(h.t.Context(), fleet.ObjectKey{}, "", "", 10_000)
	require.NoError(h.t, err)
	for _, o := range own {
		add(in, o)
	}
	copied, err := h.regions[in].store.WatchedCopies(h.t.Context(), fleet.CopyKey{}, "", "", 10_000)
	require.NoError(h.t, err)
	for _, o := range copied {
		add(o.Region, o)
	}
	return out
}

// agree waits until all regions have the same, byte for byte.
func (h *handing) agree(what string) {
	h.t.Helper()
	var all []fleet.RegionName
	for name := range h.regions {
		all = append(all, name)
	}
	same := func() bool {
		first := fmt.Sprint(h.shared(all[0]))
		for _, r := range all[1:] {
			if fmt.Sprint(h.shared(r)) != first {
				return false
			}
		}
		return true
	}
	h.turn(what, same, all...)
}

func (h *handing) cut(a, b fleet.RegionName, cut bool) {
	h.setCut([2]fleet.RegionName{a, b}, cut)
	h.setCut([2]fleet.RegionName{b, a}, cut)
}

func (h *handing) operation(in fleet.RegionName, id fleet.OperationID) postgres.Operation {
	h.t.Helper()
	op, err := h.regions[in].store.GetOperation(h.t.Context(), id)
	require.NoError(h.t, err)
	return op
}

func (h *handing) lost(in fleet.RegionName) (n int) {
	h.t.Helper()
	require.NoError(h.t, h.regions[in].raw.QueryRow(h.t.Context(), `SELECT count(*) FROM lost_writes`).Scan(&n))
	return n
}

func refusedBy(t *testing.T, owner string, err error) {
	t.Helper()
	require.Equal(t, fleet.NotOwner, fleet.KindOf(err), "%v", err)
	var e *fleet.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, owner, e.Owner)
}

// M27, M34, M39: the old owner writes nothing after its fence; the new one claims when it has all that was written before, takes over
// what is shared, and writes it; both end with the same.
func TestHandOver(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	op, err := h.request("eu", "us", false)
	require.NoError(t, err)
	refusedBy(t, "us", h.template("eu", 2))
	_, err = h.regions["eu"].store.DeleteDeclared(t.Context(), h.write(press))
	refusedBy(t, "us", err)
	_, err = h.regions["eu"].store.DeleteDeclared(t.Context(), h.write(lineKey))
	refusedBy(t, "us", err)
	err = h.templateAs("eu", h.write(fleet.TemplateKey("other")), `{}`)
	refusedBy(t, "us", err)
	_, err = h.regions["eu"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{})
	refusedBy(t, "us", err)
	turn := h.step("eu")
	require.NotNil(t, turn.HandOver)
	require.Equal(t, "waiting for region us to claim it", turn.HandOver.Waits)
	require.Equal(t, fleet.OperationRunning, h.operation("eu", op.ID).State)

	h.turn("us claims the project", func() bool { return h.owner("us", "eu", lineKey) == "us 2" }, "us")
	require.NoError(t, h.template("us", 3), "the first write takes it over")
	h.agree("all have what us wrote")
	for _, r := range []fleet.RegionName{"eu", "us", "ap"} {
		require.Equal(t, "us 2", h.owner(r, "eu", lineKey), r)
		require.Equal(t, "us 2", h.owner(r, "eu", press), r)
		o, err := h.here(r, "eu", press)
		require.NoError(t, err)
		require.Equal(t, "3", o.Labels["v"])
		require.Zero(t, h.lost(r))
	}
	h.turn("the operation ends", func() bool { return h.operation("eu", op.ID).State == fleet.OperationSucceeded }, "eu")
	refusedBy(t, "us", h.template("eu", 4))
	h.equal()
	h.usable(`{"v":3}`)

	t.Run("and back", func(t *testing.T) {
		_, err := h.request("us", "eu", false)
		require.NoError(t, err)
		refusedBy(t, "eu", h.template("us", 5))
		h.turn("eu claims it again", func() bool { return h.owner("us", "eu", lineKey) == "eu 3" }, "eu")
		require.NoError(t, h.template("eu", 6))
		h.agree("all have what eu wrote")
		require.Equal(t, "eu 3", h.owner("ap", "eu", press))
		h.equal()
		h.usable(`{"v":6}`)
	})
}

// equal checks that a comparison of each region with each other one finds nothing.
func (h *handing) equal() {
	h.t.Helper()
	for self := range h.regions {
		for peer := range h.regions {
			if self == peer {
				continue
			}
			h.ask(self, peer, false)
			turn := h.mesh.compare(questions{mesh: h.mesh, self: self}, peer)
			require.Equal(h.t, fleet.SyncCounts{Compared: turn.Compared}, turn.SyncCounts, "%s compares with %s", self, peer)
		}
	}
}

// usable checks that every region can use the newest generation of the template, with its base.
func (h *handing) usable(base string) {
	h.t.Helper()
	for self, r := range h.regions {
		spec, generation, err := r.store.TemplateSpec(h.t.Context(), fleet.CopiedTemplate("eu", press.Name).In(self), 0)
		require.NoError(h.t, err, self)
		body, err := r.store.OpenBody(h.t.Context(), spec.Base.Hash)
		require.NoError(h.t, err, self)
		text, err := io.ReadAll(body)
		require.NoError(h.t, err, self)
		require.Equal(h.t, base, string(text), "generation %d in %s", generation, self)
	}
}
