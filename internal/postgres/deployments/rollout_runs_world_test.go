package deployments_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/bounds"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const (
	dock      = fleet.SiteName("dock")
	runBudget = 2000 // turns in which a run comes to rest
)

// machine is a node, with what it runs whether or not the region hears it.
type machine struct {
	name fleet.NodeName
	site fleet.SiteName
	conn fleet.ConnectionID // "" while it is not connected
	set  fleet.NodeReplicas // that it has
	runs map[fleet.ReplicaID]fleet.ReplicaStatus
	gone bool
}

// program is what a definition makes of a replica: it never gets healthy, or never ready. Terms are those of the definition itself.
type program struct {
	broken, late bool
	terms        fleet.ReplicaTerms
}

// history is the deployment web on the real store, and all that happens to it. Time passes by moving all times of the region back.
type history struct {
	*bench
	t     *rapid.T
	nodes []*machine
	cores float64
	// spec is what is declared; made counts the contents of which it had one, programs says how each behaves.
	spec     fleet.DeploymentSpec
	made     int
	programs map[fleet.Hash]program
	readies  bool // replicas have a readiness check
	sick     bool // what starts now exits
	deleted  bool
	last     fleet.DeploymentVisited
}

// ageable has the database move the times of a deployment, and of its nodes, back.
func (b *bench) ageable() *bench {
	b.T.Helper()
	b.PutSite(dock, "dock-a", "dock-b")
	b.Exec(stores.Scan[string](b, `SELECT 'CREATE FUNCTION age_by(d interval) RETURNS void LANGUAGE sql AS $f$' || string_agg(x.move, ';') || '$f$' FROM (
		SELECT 'UPDATE ' || c.table_name || ' SET ' || string_agg(c.column_name || '=' || c.column_name || '- d', ',') AS move
		FROM information_schema.columns c WHERE c.data_type = 'timestamp with time zone' AND (c.table_name, c.column_name) <> ('link_servers', 'seen_at')
		AND c.table_name IN ('deployments', 'deployment_revisions', 'replicas', 'rollouts', 'operations', 'connections', 'link_servers', 'nodes', 'node_drains', 'replica_tombstones', 'orphan_replicas')
		GROUP BY c.table_name) x`))
	return b
}

// begins with a deployment of a region in which nothing ran before.
func (b *bench) begins(t *rapid.T) *history {
	h := &history{bench: b, t: t, programs: map[fleet.Hash]program{}}
	b.Exec(`TRUNCATE deployments, deployment_numbers, operations, connections, node_drains, replica_tombstones, orphan_replicas, outbox CASCADE`)
	b.Exec(`DELETE FROM objects WHERE kind = 'deployment'`)
	b.Exec(`UPDATE nodes SET cordoned_at = NULL`)
	b.Exec(`DELETE FROM link_servers`)
	h.cores = rapid.SampledFrom([]float64{1, 2, 3, 6, 6, 6}).Draw(t, "cores")
	h.readies = rapid.IntRange(0, 2).Draw(t, "readiness check") == 0
	for i, name := range []fleet.NodeName{nodeA, "dock-a", nodeB, "dock-b"}[:rapid.SampledFrom([]int{1, 2, 3, 4, 4}).Draw(t, "nodes")] {
		m := &machine{name: name, site: []fleet.SiteName{stores.Plant, dock}[i%2], runs: map[fleet.ReplicaID]fleet.ReplicaStatus{}}
		if !stores.Scan[bool](b, `SELECT signing_key IS NOT NULL AND revoked_at IS NULL FROM nodes WHERE name = $1`, string(name)) {
			_, err := b.Enrol(b.Ctx(), b.JoinTokenAt(m.site, name, fmt.Sprint(name, time.Now().UnixNano())))
			require.NoError(t, err)
		}
		h.nodes = append(h.nodes, m)
		h.back(m)
	}
	b.LinkSince("1 day")
	most := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 4}).Draw(t, "target")
	h.spec = webSpec(most)
	h.spec.Replicas.Min, h.spec.Replicas.Max = rapid.IntRange(0, most).Draw(t, "min"), 6
	h.spec.Recovery.GiveUp, h.spec.Recovery.CrashMaxSeconds = 6, 120
	h.spec.Strategy.MinHealthyTime = nil
	h.spec.Process.Startup = &fleet.Startup{Deadline: 60}
	if h.readies {
		h.spec.Process.Readiness = &fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 10, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 2}
	}
	if rapid.IntRange(0, 2).Draw(t, "versioned") == 0 {
		h.spec.Update = fleet.UpdateVersioned
	}
	if rapid.IntRange(0, 9).Draw(t, "fixed port") == 9 {
		h.spec.Process.Ports = []fleet.ProcessPort{{Name: "http", Port: 8080}}
	}
	h.release(true)
	return h
}

// age lets time pass.
func (h *history) age(by time.Duration) {
	h.Exec(`SELECT age_by($1)`, by)
	require.NoError(h.t, h.LinkServerSeen(h.Ctx(), linkServer, time.Minute))
}

// back has a node connect.
func (h *history) back(m *machine) {
	if m.conn != "" || m.gone {
		return
	}
	m.conn = h.opensAs("node:"+string(m.name), fleet.ProviderName(m.name), func(r *fleet.Registration) {
		r.Node, r.Namespace, r.Modules, r.Executor = m.name, "", nil, ""
		r.Facts = fleet.NodeFacts{Drivers: []fleet.Driver{fleet.DriverProcess}, Resources: fleet.Resources{CPU: h.cores, Memory: 1000}, Separation: fleet.SeparationUID, Readiness: true}
	})
}

func (h *history) away(m *machine) {
	if m.conn != "" {
		h.disconnect(m.name)
		m.conn = ""
	}
}

// report has a node say all that it has, by the set that it has.
func (h *history) report(m *machine, stopped ...fleet.ReplicaStatus) {
	r := fleet.ReplicasReport{
		Node: m.name, Connection: m.conn, Set: fleet.SetVersion{Era: m.set.Era, Number: m.set.Version}, Complete: true, Whole: m.set.Version > 0, Replicas: stopped,
	}
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		r.Replicas = append(r.Replicas, m.runs[id])
	}
	_, err := h.ReplicasReported(h.Ctx(), r)
	require.NoError(h.t, err)
}

// work has each connected node read its set, do what that says, and report. It tells whether anything became of that.
func (h *history) work() (changed bool) {
	for _, m := range h.nodes {
		if m.conn == "" {
			continue
		}
		stopped, moved := h.fetch(m), false
		for id, r := range m.runs {
			if next := h.next(r, m.set); next.Phase != r.Phase || next.Health != r.Health || next.Unready != r.Unready {
				m.runs[id], moved = next, true
			}
		}
		h.report(m, stopped...)
		changed = changed || moved || len(stopped) > 0
	}
	return changed
}

// fetch has a node read its set: it ends what is to end, and begins with what is new. A set with other lines has a higher number.
func (h *history) fetch(m *machine) (stopped []fleet.ReplicaStatus) {
	set, err := h.NodeReplicas(h.Ctx(), m.name)
	require.NoError(h.t, err)
	require.GreaterOrEqual(h.t, set.Version, m.set.Version)
	if set.Version == m.set.Version {
		require.Equal(h.t, h.obeyed(m.set), h.obeyed(set), "the set of %s is another, and not its number", m.name)
	}
	m.set = set
	for _, x := range set.Replicas {
		_, has := m.runs[x.ID]
		switch {
		case !x.Run:
			delete(m.runs, x.ID)
			stopped = append(stopped, fleet.ReplicaStatus{ID: x.ID, Phase: fleet.PhaseStopped, Health: fleet.HealthUnhealthy, Reason: "stopped"})
		case !has:
			m.runs[x.ID] = fleet.ReplicaStatus{
				ID: x.ID, Phase: fleet.PhasePreparing, Health: fleet.HealthNotChecked, Deployment: x.Deployment, Revision: x.Revision,
				ProcessVersion: x.ProcessVersion, Definition: fleet.ShortHash(x.Definition),
			}
		}
	}
	return stopped
}

// obeyed are the lines of a set, each with the terms by which its replica runs.
func (h *history) obeyed(set fleet.NodeReplicas) []fleet.NodeReplica {
	out := slices.Concat([]fleet.NodeReplica{}, set.Replicas)
	for i, x := range out {
		if x.Run && x.Terms == (fleet.ReplicaTerms{}) {
			out[i].Terms = h.programs[x.Definition].terms
		}
	}
	return out
}

// next is what becomes of a replica that its program lets be.
func (h *history) next(r fleet.ReplicaStatus, set fleet.NodeReplicas) fleet.ReplicaStatus {
	i := slices.IndexFunc(set.Replicas, func(x fleet.NodeReplica) bool { return x.ID == r.ID })
	if i < 0 || r.Phase.Over() {
		return r
	}
	p := h.programs[set.Replicas[i].Definition]
	switch {
	case r.Phase == fleet.PhasePreparing && (p.broken || h.sick):
		r.Phase, r.Health, r.Reason, r.Message = fleet.PhaseExited, fleet.HealthUnhealthy, fleet.ReasonExited, "exit status 1"
	case r.Phase == fleet.PhasePreparing && h.readies, p.late:
		r.Phase, r.Health, r.Unready = fleet.PhaseRunning, fleet.HealthHealthy, true
	default:
		r.Phase, r.Health, r.Unready, r.Reason = fleet.PhaseRunning, fleet.HealthHealthy, false, ""
	}
	return r
}

// visits has the entity look until it has nothing to do at once, now and then from two servers at the same time.
func (h *history) visits() {
	for range runBudget {
		before := h.seen()
		both := [2]fleet.DeploymentVisited{}
		n := 1 + rapid.IntRange(0, 4).Draw(h.t, "two servers")/4
		require.NoError(h.t, stores.AtOnce(n, func(i int) (err error) {
			both[i], err = h.VisitDeployment(h.Ctx(), fleet.DeploymentVisit{Deployment: web, Run: fmt.Sprint("run-", i), Build: "build-1"})
			return err
		}))
		h.last = both[0]
		if both[1].At.After(both[0].At) {
			h.last = both[1]
		}
		h.holds(before, h.seen())
		require.True(h.t, h.last.Done || h.last.More || !h.last.Next.IsZero(), "%s: nothing would wake it", h.last.Rule)
		if !h.last.More {
			return
		}
	}
	require.Fail(h.t, "there is always more to do", "%s: %s", h.last.Rule, h.last.Message)
}

// holds compares a deployment before and after visits.
func (h *history) holds(before, after fleet.DeploymentSeen) {
	h.inTime(after)
	created, ended, first := 0, 0, 0
	was := map[fleet.ReplicaID]fleet.ReplicaSeen{}
	for _, r := range before.Replicas {
		was[r.ID] = r
	}
	for _, r := range after.Replicas {
		old, known := was[r.ID]
		if !known {
			created++
			h.mayCreate(before, after, r)
		} else if old.State.Live() && !r.State.Live() {
			ended++
			if r.Reason == decide.ReasonOldFirst {
				first = 1
			}
		}
	}
	over := after.Deleting || after.Stopped || after.State == fleet.DeploymentDestroying || after.State == fleet.DeploymentTerminated
	if over || after.State == fleet.DeploymentError {
		require.Zero(h.t, created, "S32: %s creates in %s", after.Reason, after.State)
		return
	}
	if recreates(before) || recreates(after) {
		return
	}
	within := before // of the visit that ended a rollout, that rollout
	if within.Rollout == nil {
		within.Rollout = after.Rollout
	}
	next := before
	next.Rollout = after.Rollout
	most := max(bounds.Most(within), bounds.Most(next)) // one of two servers ends it, the other begins what waited for that
	within.Target = min(before.Target, after.Target)    // a return restores the target
	had, has := bounds.Of(before), bounds.Of(after)
	least := min(bounds.Least(within), had.Routable) - first
	if within.Rollout != nil && (within.Rollout.Short || after.Rollout != nil && after.Rollout.Short) {
		least = min(bounds.Least(within)-1, had.Routable)
	}
	require.GreaterOrEqual(h.t, has.Routable, least, "%s ends too many: %s", after.Reason, h.told(before, after))
	require.LessOrEqual(h.t, created, max(0, most-had.Live+ended), "%s: more than the target and the surge: %s", after.Reason, h.told(before, after))
}

func recreates(seen fleet.DeploymentSeen) bool {
	return seen.Rollout != nil && seen.Rollout.Strategy.Type == fleet.StrategyRecreate
}

// mayCreate: of a rollout that returns nothing is created again, and of a recreation nothing beside the others (F31).
func (h *history) mayCreate(before, after fleet.DeploymentSeen, r fleet.ReplicaSeen) {
	for _, seen := range []fleet.DeploymentSeen{before, after} {
		if seen.Rollout != nil && seen.Rollout.State == fleet.RolloutCanceling {
			require.NotEqual(h.t, seen.Rollout.To.ProcessVersion, r.ProcessVersion, "what failed is created again: %s", h.told(before, after))
		}
	}
	if recreates(before) && before.Rollout.State != fleet.RolloutCanceling && before.Rollout.To.ProcessVersion == r.ProcessVersion {
		others := slices.ContainsFunc(before.Replicas, func(x fleet.ReplicaSeen) bool { return x.ProcessVersion != r.ProcessVersion })
		require.False(h.t, others, "the others have not ended: %s", h.told(before, after))
	}
}

// inTime: a rollout is past none of its deadlines, nor its return past its own.
func (h *history) inTime(seen fleet.DeploymentSeen) {
	r := seen.Rollout
	if r == nil || h.last.More {
		return
	}
	by := r.Deadline
	switch r.State { //nolint:exhaustive // no time bounds one that has ended
	case fleet.RolloutPaused:
		by = r.Since.Add(r.Strategy.LongestPause())
	case fleet.RolloutCanceling:
		by = r.Since.Add(24 * time.Hour)
	}
	if r.State != fleet.RolloutPaused && r.There.After(by) {
		by = r.There
	}
	require.True(h.t, seen.At.Before(by.Add(time.Second)), "rollout %d is %s, past %s", r.Number, r.State, by)
}

// told is what a failure shows.
func (h *history) told(before, after fleet.DeploymentSeen) string {
	s := ""
	for _, seen := range []fleet.DeploymentSeen{before, after} {
		s += fmt.Sprintf("\n%s %s (%s) target %d version %d", seen.State, seen.Reason, seen.Message, seen.Target, seen.ProcessVersion)
		if r := seen.Rollout; r != nil {
			s += fmt.Sprintf(" rollout %d %s to %d at start %d short %t %+v", r.Number, r.State, r.To.ProcessVersion, r.AtStart, r.Short, r.Strategy)
		}
		for _, r := range seen.Replicas {
			s += fmt.Sprintf("\n  %s %s %s %s v%d unready %t heard %t leave %t %s: %s", r.ID, r.Node, r.State, r.Phase, r.ProcessVersion, r.Unready, r.Unheard.IsZero(), r.Leave, r.Reason, r.Message)
		}
	}
	return s
}
