//go:build !race

package region

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

// handingOver is a hand-over that was asked for.
type handingOver struct {
	in fleet.RegionName
	id fleet.OperationID
}

// step is one of what people, the network and machines do at random. Some histories have neither claims by force nor restores: in them
// nothing may be lost.
func (r *runs) step() {
	r.t.Helper()
	in, project := r.pick(), r.project()
	kind := fleet.KindPool
	if project != everywhere && r.random.IntN(3) == 0 {
		kind = fleet.KindTemplate
	}
	key := fleet.ObjectKey{Kind: kind, Name: fmt.Sprintf("%s-%s-%d", project, kind, r.random.IntN(2))}
	switch n := r.random.IntN(40); {
	case n < 12:
		if kind == fleet.KindTemplate && r.random.IntN(4) > 0 {
			in = r.ownerOf(r.holder(project))
		}
		r.declareUnder(in, project, key)
	case n < 16:
		r.changePolicy(in, project, r.holder(project))
	case n < 19:
		r.removeAs(in, key)
	case n == 19:
		r.removeAs(in, r.holder(project))
	case n < 24:
		r.link(in, true)
	case n < 27:
		r.link(in, false)
	case n < 29:
		self, peer := r.two()
		r.ask(self, peer, false)
		r.relay(self)
	case n < 32:
		r.handOver(r.holder(project), false)
	case n == 32:
		r.cancelOne()
	case n == 33 && r.forces():
		r.handOver(r.holder(project), true)
	case n == 34 && r.restores():
		r.restore(in)
	case n == 35 && r.restores():
		r.backUp(in)
	default:
		r.relay(in)
	}
}

// forces and restores: half of the histories have claims by force, half have restores.
func (r *runs) forces() bool { return r.seed%2 == 1 }

func (r *runs) restores() bool { return r.seed%4 > 1 }

// everywhere is the name of a project that each region has. A template of it would be governed by another region's project until its
// own region declares one, and then have two owners.
const everywhere = "p"

// project is often one of the name that each region has, but where a region is restored: an object names its project, so while a
// restore has undone one of them, another one of the name governs what is in it.
func (r *runs) project() string {
	if !r.restores() && r.random.IntN(3) == 0 {
		return everywhere
	}
	return string(r.pick()) + "-0"
}

// beside is the kind of holders that a history has beside projects: organizations above them, services in them, or "".
func (r *runs) beside() fleet.ObjectKind {
	return []fleet.ObjectKind{"", fleet.KindOrganization, fleet.KindService}[r.seed%3]
}

// holder is what may have the policy of what is in a project: that, or the holder beside it, which has its name.
func (r *runs) holder(project string) fleet.ObjectKey {
	if beside := r.beside(); beside != "" && project != everywhere && r.random.IntN(3) > 0 {
		return fleet.ObjectKey{Kind: beside, Name: project}
	}
	return fleet.ProjectKey(fleet.ProjectName(project))
}

// service is what an object of a project belongs to, for life.
func (r *runs) service(key fleet.ObjectKey, project string) string {
	if r.beside() == fleet.KindService && project != everywhere && !key.Kind.Declared().Holder && strings.HasSuffix(key.Name, "-0") {
		return project
	}
	return ""
}

// ownerOf is a region that owns a holder of a name, or any.
func (r *runs) ownerOf(holder fleet.ObjectKey) fleet.RegionName {
	r.t.Helper()
	for _, i := range r.random.Perm(len(runNames)) {
		if r.owns(runNames[i], holder) != "" {
			return runNames[i]
		}
	}
	return r.pick()
}

func (r *runs) two() (self, peer fleet.RegionName) {
	i := r.random.IntN(len(runNames))
	return runNames[i], runNames[(i+1+r.random.IntN(len(runNames)-1))%len(runNames)]
}

func (r *runs) link(self fleet.RegionName, cut bool) {
	peer := r.pick()
	r.tell("link of %s to %s: cut %t", self, peer, cut)
	r.setCut([2]fleet.RegionName{self, peer}, cut)
	if r.random.IntN(2) == 0 {
		r.setCut([2]fleet.RegionName{peer, self}, cut)
	}
}

// refusals are why a region may refuse a write: nothing else.
var refusals = []fleet.Kind{fleet.NotFound, fleet.IllegalState, fleet.NotOwner, fleet.Unavailable, fleet.Conflict}

func (r *runs) refused(what string, err error) bool {
	r.t.Helper()
	if err == nil {
		return false
	}
	r.tell("%s: refused: %v", what, err)
	if !strings.Contains(err.Error(), "it merges only templates that") { // a name that means another region's template
		require.Contains(r.t, refusals, fleet.KindOf(err), "%s: %v", what, err)
	}
	return true
}

// write declares an object with a label that no other write has.
func (r *runs) write(in fleet.RegionName, key fleet.ObjectKey, project string, spec any) {
	r.t.Helper()
	v := r.ledger.next()
	what := fmt.Sprintf("%s declares %s as %s", in, key, v)
	w := postgres.Write{
		Request: postgres.Request{Actor: "test", Project: fleet.ProjectName(project)}, Key: key, Labels: map[string]string{"v": v},
		Service: r.service(key, project),
	}
	if key.Kind == fleet.KindOrganization {
		w.Project = ""
	}
	if key.Name == everywhere && r.owns(in, key) == "" {
		w.Region = in // else it is the copy that is meant, if there is one
	}
	out, err := r.regions[in].store.Declare(r.t.Context(), w, spec)
	if r.refused(what, err) {
		return
	}
	r.tell("%s: done", what)
	r.ledger.wrote(in, key, v, out)
}

func (r *runs) declareUnder(in fleet.RegionName, project string, key fleet.ObjectKey) {
	r.t.Helper()
	if key.Kind == fleet.KindPool {
		r.write(in, key, project, fleet.PoolSpec{MaxReplicas: r.random.IntN(4)})
		return
	}
	text := []byte(bodyOf(r.ledger.coming()))
	hash, err := r.regions[in].store.PutBody(r.t.Context(), fleet.ProjectName(project), text)
	if r.refused("a body", err) {
		return
	}
	spec := fleet.TemplateSpec{Base: fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(text))}}
	if strings.HasSuffix(key.Name, "-0") && r.random.IntN(2) == 0 { // so no template merges itself
		spec.Compositions = []fleet.TemplatePin{{Name: fleet.TemplateName(strings.TrimSuffix(key.Name, "0") + "1")}}
	}
	r.write(in, key, project, spec)
}

// bodyOf is the base of a template that is labelled so.
func bodyOf(v string) string { return `{"v":"` + v + `"}` }

// declareHolder declares one with a policy that enables some regions; for none, without a policy.
func (r *runs) declareHolder(in fleet.RegionName, project string, key fleet.ObjectKey, enabled []fleet.RegionName) {
	r.t.Helper()
	var of fleet.HolderSpec
	if len(enabled) > 0 {
		of.MultiRegionPolicy = &fleet.MultiRegionPolicy{DefaultControlRegion: string(in)}
		for _, name := range enabled {
			of.MultiRegionPolicy.EnabledRegions = append(of.MultiRegionPolicy.EnabledRegions, string(name))
		}
	}
	under := fleet.ProjectSpec{HolderSpec: of}
	if r.beside() == fleet.KindOrganization && project != everywhere {
		under.Organization = project
	}
	spec := map[fleet.ObjectKind]any{
		fleet.KindOrganization: fleet.OrganizationSpec{HolderSpec: of}, fleet.KindProject: under, fleet.KindService: fleet.ServiceSpec{HolderSpec: of},
	}[key.Kind]
	r.write(in, key, project, spec)
}

// declareAll declares a project and the holder beside it.
func (r *runs) declareAll(in fleet.RegionName, project string) {
	r.t.Helper()
	key, beside := fleet.ProjectKey(fleet.ProjectName(project)), fleet.ObjectKey{Kind: r.beside(), Name: project}
	switch {
	case project == everywhere || beside.Kind == "":
		r.declareHolder(in, project, key, runNames)
	case beside.Kind == fleet.KindOrganization:
		r.declareHolder(in, project, beside, runNames)
		r.declareHolder(in, project, key, nil)
	default:
		r.declareHolder(in, project, key, runNames)
		r.declareHolder(in, project, beside, runNames)
	}
}

// changePolicy enables others for a holder that a region owns, or may declare. Where regions claim by force, all stay enabled: a claim by
// a policy that was replaced meanwhile counts nowhere else, and an operator has to end that.
func (r *runs) changePolicy(in fleet.RegionName, project string, key fleet.ObjectKey) {
	r.t.Helper()
	if !strings.HasPrefix(project, string(in)) && project != everywhere && r.owns(in, key) == "" {
		return
	}
	if r.beside() != "" && key.Kind != fleet.KindOrganization && project != everywhere && !r.forces() && r.random.IntN(3) == 0 {
		r.declareHolder(in, project, key, nil) // what is above it governs then
		return
	}
	enabled := []fleet.RegionName{in}
	for _, other := range others(in) {
		if r.forces() || r.random.IntN(3) > 0 {
			enabled = append(enabled, other)
		}
	}
	r.declareHolder(in, project, key, enabled)
}

// owns is the region that created a holder which a region owns, "" if it owns none of that name.
func (r *runs) owns(in fleet.RegionName, holder fleet.ObjectKey) (birth string) {
	r.t.Helper()
	err := r.regions[in].raw.QueryRow(r.t.Context(), `SELECT region FROM shared WHERE kind = $1 AND name = $2 AND owner = $3 LIMIT 1`, holder.Kind, holder.Name, in).
		Scan(&birth)
	if err != nil {
		require.ErrorIs(r.t, err, pgx.ErrNoRows)
	}
	return birth
}

func (r *runs) removeAs(in fleet.RegionName, key fleet.ObjectKey) {
	r.t.Helper()
	what := fmt.Sprintf("%s deletes %s", in, key)
	out, err := r.regions[in].store.DeleteDeclared(r.t.Context(), postgres.Write{Request: postgres.Request{Actor: "test"}, Key: key})
	if r.refused(what, err) {
		return
	}
	r.tell("%s: done", what)
	r.ledger.deleted(in, key, out)
}

// handOver asks for one in the region that owns a holder, or has another one claim it.
func (r *runs) handOver(holder fleet.ObjectKey, force bool) {
	r.t.Helper()
	in := r.ownerOf(holder)
	to := others(in)[r.random.IntN(len(runNames)-1)]
	if force {
		in = to
	}
	what := fmt.Sprintf("%s hands %s over to %s, forced %t", in, holder, to, force)
	op, err := r.regions[in].store.AskHandOver(r.t.Context(), policies.HandOverRequest{
		Request: postgres.Request{Actor: "test", Limit: time.Hour}, Holder: holder, To: to, Force: force,
	})
	if fleet.KindOf(err) == fleet.Invalid || r.refused(what, err) { // it is not enabled
		return
	}
	r.tell("%s: asked", what)
	r.forced = r.forced || force
	r.asked = append(r.asked, handingOver{in, op.ID})
}

func (r *runs) cancelOne() {
	r.t.Helper()
	if len(r.asked) == 0 {
		return
	}
	one := r.asked[r.random.IntN(len(r.asked))]
	_, err := r.regions[one.in].store.CancelOperation(r.t.Context(), one.id)
	if !r.refused("cancel", err) {
		r.tell("%s cancels %s", one.in, one.id)
	}
}

// cancelAll cancels the hand-overs that do not end.
func (r *runs) cancelAll() {
	r.t.Helper()
	for _, name := range runNames {
		rows, err := r.regions[name].raw.Query(r.t.Context(), `SELECT id FROM operations WHERE state = 'running' AND kind = 'hand-over' AND NOT cancel_requested`)
		require.NoError(r.t, err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(r.t, err)
		for _, id := range ids {
			_, err := r.regions[name].store.CancelOperation(r.t.Context(), fleet.OperationID(id))
			r.tell("an operator of %s cancels %s: %v", name, id, err)
		}
	}
}

// enableAgain declares policies again that enable all regions, of what is set aside for want of one: where a restore undid the policy, with
// the enabling of a region that claimed the holder since, or the creation of what its owner has without a policy.
func (r *runs) enableAgain() {
	r.t.Helper()
	for _, name := range runNames {
		rows, err := r.regions[name].raw.Query(r.t.Context(), `SELECT DISTINCT q.peer, q.region, q.kind, q.name, coalesce(s.owner = $2, false) FROM quarantine q
			LEFT JOIN shared s ON s.kind = q.kind AND s.name = q.name AND s.region = q.region
			WHERE q.kind IN ('organization', 'project', 'service', 'template') AND q.reason = $1`, decide.UnprovenOwner, name)
		require.NoError(r.t, err)
		aside, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a asideOf, err error) {
			err = row.Scan(&a.peer, &a.key.Region, &a.key.Kind, &a.key.Name, &a.mine)
			return a, err
		})
		require.NoError(r.t, err)
		for _, a := range aside {
			switch project, _, under := strings.Cut(a.key.Name, "-template-"); {
			case a.mine && !under:
				r.declareHolder(name, a.key.Name, a.key.ObjectKey, runNames)
			case !a.mine && r.ungoverned(a.peer, a.key):
				r.declareHolder(a.peer, project, fleet.ProjectKey(fleet.ProjectName(project)), runNames)
			}
		}
	}
}

// asideOf is what a region set aside of a peer, and whether it owns the object itself.
type asideOf struct {
	peer fleet.RegionName
	key  fleet.CopyKey
	mine bool
}

// ungoverned: a region has an object that no policy is over.
func (r *runs) ungoverned(in fleet.RegionName, key fleet.CopyKey) bool {
	r.t.Helper()
	rows := r.rows(in)
	i := slices.IndexFunc(rows, func(o *runRow) bool { return o.Key == key })
	return i >= 0 && holdersIn(rows).policy(rows[i]) == nil
}

// relay has a region do what its outbox says, as far as it can now.
func (r *runs) relay(in fleet.RegionName) {
	r.t.Helper()
	at := r.regions[in]
	at.exec(r.t, `UPDATE copies_waiting SET retry_at = now() WHERE retry_at > now()`) // their time is real
	rows, err := at.raw.Query(r.t.Context(), `SELECT DISTINCT subject FROM outbox ORDER BY subject`)
	require.NoError(r.t, err)
	subjects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r.t, err)
	for _, subject := range subjects {
		switch part := strings.SplitN(subject, ".", 3); {
		case part[0] == "policy" && len(part) == 3:
			r.applyPolicy(in, fleet.PolicyVisit{Kind: fleet.ObjectKind(part[1]), Name: part[2]})
		case part[0] == "sync":
			r.compareWith(in, fleet.RegionName(part[1]))
		default:
			r.t.Fatalf("%s has %s in its outbox", in, subject)
		}
	}
}

func (r *runs) applyPolicy(in fleet.RegionName, visit fleet.PolicyVisit) {
	r.t.Helper()
	s := r.regions[in].store
	turn, err := s.ApplyPolicyPage(r.t.Context(), visit)
	for err == nil && !turn.Done && !turn.Waits {
		turn, err = s.ApplyPolicyPage(r.t.Context(), visit)
	}
	require.NoError(r.t, err)
	if turn.HandOver == nil || !turn.HandOver.Cancel {
		return
	}
	to, renounce, err := s.RenounceOf(r.t.Context(), visit.Holder())
	require.NoError(r.t, err)
	if renounce == nil || r.isCut(in, to) {
		return
	}
	err = r.regions[to].store.Renounce(r.t.Context(), in, *renounce)
	r.tell("%s asks %s to renounce %s: %v", in, to, visit.Holder(), err)
	if err == nil {
		require.NoError(r.t, s.TakeBack(r.t.Context(), *renounce))
		return
	}
	require.Contains(r.t, []fleet.Kind{fleet.IllegalState, fleet.Denied}, fleet.KindOf(err), "%v", err)
}

func (r *runs) isCut(self, peer fleet.RegionName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut[[2]fleet.RegionName{self, peer}]
}

// compareWith compares a region with a peer, as far as it goes.
func (r *runs) compareWith(self, peer fleet.RegionName) {
	r.t.Helper()
	c := &compare.Comparer{Store: r.regions[self].store, Peers: questions{mesh: r.mesh, self: self, mangle: r.mangled}}
	for range 100 {
		turn, err := c.Page(r.t.Context(), fleet.SyncVisit{Peer: peer, Run: "run"})
		if fleet.KindOf(err) == fleet.Stale {
			continue
		}
		require.NoError(r.t, err)
		if turn.Done || turn.Waits != "" {
			return
		}
	}
}

// held are the policy holders of a region by kind and name, and by the region that created them.
type held map[fleet.ObjectKey]map[fleet.RegionName]*runRow

func holdersIn(rows []*runRow) held {
	out := held{}
	for _, o := range rows {
		if !o.Key.Kind.Declared().Holder {
			continue
		}
		if out[o.Key.ObjectKey] == nil {
			out[o.Key.ObjectKey] = map[fleet.RegionName]*runRow{}
		}
		out[o.Key.ObjectKey][o.Key.Region] = o
	}
	return out
}

// named is the holder that an object of a region means by a name, as its owner has the names.
func (h held) named(key fleet.ObjectKey, from fleet.RegionName) *runRow {
	all := h[key]
	if p := all[from]; p != nil {
		return p
	}
	if len(all) == 1 {
		return slices.Collect(maps.Values(all))[0]
	}
	return nil
}

// policy is that of the first holder of an object that has one.
func (h held) policy(o *runRow) *fleet.MultiRegionPolicy {
	of := func(r *runRow) (spec fleet.ProjectSpec) {
		if r != nil && json.Unmarshal(r.Spec, &spec) != nil {
			return fleet.ProjectSpec{}
		}
		return spec
	}
	if o.Service != "" && h.named(fleet.ServiceKey(o.Service), o.Key.Region) == nil {
		return nil // what is not known may have a policy
	}
	project := h.named(fleet.ProjectKey(fleet.ProjectName(o.Project)), o.Key.Region)
	if o.Key.Kind == fleet.KindProject {
		project = o
	}
	all := []*runRow{h.named(fleet.ServiceKey(o.Service), o.Key.Region), project, h.named(fleet.OrganizationKey(of(project).Organization), o.Key.Region)}
	if o.Key.Kind.Declared().Holder {
		all = append([]*runRow{o}, all...)
	}
	for _, r := range all {
		if p := of(r).MultiRegionPolicy; p != nil {
			return p
		}
	}
	return nil
}

// mangled cuts some answers of a comparison.
func (r *runs) mangled(_ string, answer []byte) []byte {
	if r.random.IntN(10) == 0 {
		return answer[:r.random.IntN(len(answer)+1)]
	}
	return bytes.Clone(answer)
}
