package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests name zones

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

const (
	speedUp     = "/api/v1/fleets/speed-up"
	fleetOpPath = "/api/v1/operations/0123456789abcdef0123456789abcdef"
)

// N99, N100, X19, X20
func TestPutFleet(t *testing.T) {
	t.Parallel()
	r, f := withFleets(t)
	r.put("/api/v1/templates/press", `{"base":{"a":1}}`)
	r.put("/api/v1/templates/press", `{"base":{"a":2}}`)

	t.Run("declares the change and starts a run", func(t *testing.T) {
		a := r.call(r.operator, http.MethodPut, speedUp, `{
			"labels":{"team":"a"},"reason":"faster",
			"change":{"template":"press","patch":{"b":1.50,"a":{"c":null}}},
			"selector":{"sites":["plant-1"],"labels":{"line":"1"}},
			"waves":[{"sites":["plant-1"],"percent":10},{}],"errorThreshold":5,
			"windows":[{"days":["mon"],"from":"22:00","to":"04:00","zone":"Europe/Berlin"}]}`, "If-Match", `"7"`, "Idempotency-Key", "k")
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, fleetOpPath, a.header.Get("Location"))
		require.Equal(t, `"42"`, a.header.Get("ETag"))
		op := into[api.Accepted](t, a).Operation
		require.Equal(t, "fleet", op.Kind)
		require.Equal(t, "speed-up", op.Fleet)
		require.Contains(t, r.wakes(), "fleet.speed-up")

		p := f.puts[len(f.puts)-1]
		require.True(t, p.Start)
		require.Equal(t, "faster", p.Reason)
		require.EqualValues(t, 7, p.IfMatch)
		require.Equal(t, "k", p.Idempotency.Key)
		require.Equal(t, map[string]string{"team": "a"}, p.Labels)
		require.Equal(t, fleet.DefaultProject, p.Project)
		require.EqualValues(t, 2, p.Spec.Change.TemplateGeneration, "the one of now is pinned")
		require.Equal(t, 95.0, p.Spec.SuccessThreshold)
		require.Equal(t, []fleet.FleetWave{{Sites: []fleet.SiteName{"plant-1"}, Percent: 10}, {Percent: 100}}, p.Spec.Waves)
		require.Equal(t, fleet.MaxBatchItems, p.Spec.BatchSize)
		body, err := r.store.WholeBodies(t.Context(), []fleet.Hash{p.Spec.Change.Patch.Hash})
		require.NoError(t, err)
		require.Equal(t, `{"a":{"c":null},"b":1.5}`, string(body[p.Spec.Change.Patch.Hash]), "canonical, and with its nulls")
	})

	t.Run("declares without a run, or only asks", func(t *testing.T) {
		a := r.call(r.operator, http.MethodPut, speedUp+"?deploy=false&dryRun=true", `{"change":{"template":"press","templateGeneration":1}}`)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Empty(t, a.header.Get("Location"))
		p := f.puts[len(f.puts)-1]
		require.False(t, p.Start)
		require.True(t, p.DryRun)
		require.EqualValues(t, 1, p.Spec.Change.TemplateGeneration)
	})

	f.puts = nil
	before := r.rows()
	deep := `{"change":{"patch":` + strings.Repeat(`{"a":`, 250) + `1` + strings.Repeat(`}`, 250) + `}}`
	for _, c := range []struct {
		name, body string
		kind       fleet.Kind
		field      string
	}{
		{"no body", ``, fleet.Invalid, "/"},
		{"no change", `{}`, fleet.Invalid, "/change"},
		{"a change that is null", `{"change":null}`, fleet.Invalid, "/change"},
		{"a change that is no object", `{"change":[1]}`, fleet.Invalid, "/change"},
		{"a change of nothing", `{"change":{}}`, fleet.Invalid, "/change"},
		{"a member that is not known", `{"change":{"patch":{}},"wave":1}`, fleet.Invalid, "/wave"},
		{"a member of the change that is not known", `{"change":{"patsch":{}}}`, fleet.Invalid, "/change/patsch"},
		{"a member that stands twice", `{"change":{"patch":{}},"change":{}}`, fleet.Invalid, "/change"},
		{"a patch that stands twice", `{"change":{"patch":{},"patch":{}}}`, fleet.Invalid, "/change/patch"},
		{"a patch that is no object", `{"change":{"patch":[]}}`, fleet.Invalid, "/change/patch"},
		{"a patch that is a number", `{"change":{"patch":1}}`, fleet.Invalid, "/change/patch"},
		{"a duplicate key in the patch", `{"change":{"patch":{"a":{"b":1,"b":2}}}}`, fleet.Invalid, "/change/patch/a/b"},
		{"a number beyond all doubles", `{"change":{"patch":{"a":1e-400}}}`, fleet.Invalid, "/change/patch/a"},
		{"a patch that is too deep", deep, fleet.Invalid, "/change/patch" + strings.Repeat("/a", 200)},
		{"malformed JSON", `{"change":{"patch":{"a":}}}`, fleet.Invalid, "/change/patch/a"},
		{"a template that is no name", `{"change":{"template":"Press"}}`, fleet.Invalid, "/change/template"},
		{"a template that is missing", `{"change":{"template":"ghost"}}`, fleet.NotFound, "/change/template"},
		{"a generation that is missing", `{"change":{"template":"press","templateGeneration":9}}`, fleet.NotFound, "/change/templateGeneration"},
		{"a generation that cannot be", `{"change":{"template":"press","templateGeneration":-1}}`, fleet.Invalid, "/change/templateGeneration"},
		{"templateGeneration needs a template", `{"change":{"patch":{},"templateGeneration":1}}`, fleet.Invalid, "/change/templateGeneration"},
		{"a site that is no name", `{"change":{"patch":{}},"selector":{"sites":["plant-1","-"]}}`, fleet.Invalid, "/selector/sites/1"},
		{"a label of no name", `{"change":{"patch":{}},"selector":{"labels":{"":"x"}}}`, fleet.Invalid, "/selector/labels"},
		{"a wave of too much", `{"change":{"patch":{}},"waves":[{},{"percent":101}]}`, fleet.Invalid, "/waves/1/percent"},
		{"a wave of a site that is no name", `{"change":{"patch":{}},"waves":[{"sites":["-"]}]}`, fleet.Invalid, "/waves/0/sites/0"},
		{"a threshold that is none", `{"change":{"patch":{}},"errorThreshold":101,"successThreshold":1}`, fleet.Invalid, "/errorThreshold"},
		{"a success that cannot be", `{"change":{"patch":{}},"successThreshold":-1}`, fleet.Invalid, "/successThreshold"},
		{"a threshold that is text", `{"change":{"patch":{}},"errorThreshold":"5"}`, fleet.Invalid, "/errorThreshold"},
		{"a batch that is too large", `{"change":{"patch":{}},"batchSize":1001}`, fleet.Invalid, "/batchSize"},
		{"too many sites at once", `{"change":{"patch":{}},"sitesAtOnce":65}`, fleet.Invalid, "/sitesAtOnce"},
		{"a deadline that is too far", `{"change":{"patch":{}},"deadlineSeconds":99999999}`, fleet.Invalid, "/deadlineSeconds"},
		{"a day that is none", `{"change":{"patch":{}},"windows":[{"days":["mo"],"from":"22:00","to":"23:00"}]}`, fleet.Invalid, "/windows/0/days/0"},
		{"a time that is none", `{"change":{"patch":{}},"windows":[{"from":"25:00","to":"23:00"}]}`, fleet.Invalid, "/windows/0/from"},
		{"a zone that is none", `{"change":{"patch":{}},"windows":[{"from":"22:00","to":"23:00"},{"from":"22:00","to":"23:00","zone":"Mars/Base"}]}`, fleet.Invalid, "/windows/1/zone"},
		{"a zone of the machine", `{"change":{"patch":{}},"windows":[{"from":"22:00","to":"23:00","zone":"Local"}]}`, fleet.Invalid, "/windows/0/zone"},
		{"a reason that is too long", `{"change":{"patch":{}},"reason":"` + strings.Repeat("x", 1025) + `"}`, fleet.Invalid, "/reason"},
		{"a label that is too long", `{"change":{"patch":{}},"labels":{"a":"` + strings.Repeat("x", 257) + `"}}`, fleet.Invalid, "/labels"},
		{"a project that is missing", `{"change":{"patch":{}},"project":"ghost"}`, fleet.NotFound, "/project"},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			p := r.call(r.operator, http.MethodPut, speedUp, c.body).problem(t)
			require.Equal(t, api.ProblemPrefix+string(c.kind), p.Type, p.Detail)
			require.Equal(t, c.field, p.Field, p.Detail)
			require.NotEmpty(t, p.Detail)
			require.Empty(t, f.puts)
			require.Equal(t, before, r.rows(), "something was stored or started")
		})
	}

	t.Run("refuses names, viewers and what others see", func(t *testing.T) {
		good := `{"change":{"template":"press"}}`
		require.Equal(t, "name", r.call(r.operator, http.MethodPut, "/api/v1/fleets/Speed_Up", good).problem(t).Field)
		require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPut, speedUp, good).status)
		require.Equal(t, "If-Match", r.call(r.operator, http.MethodPut, speedUp, good, "If-Match", "x").problem(t).Field)
		r.put("/api/v1/projects/blue", `{}`)
		r.put("/api/v1/templates/secret", `{"base":{},"project":"blue"}`)
		r.put("/api/v1/projects/red", `{}`)
		red := r.token("operator", "red")
		require.Equal(t, "/change/template", r.call(red, http.MethodPut, speedUp, `{"change":{"template":"secret"}}`).problem(t).Field)
		require.Equal(t, "/project", r.call(red, http.MethodPut, speedUp, `{"project":"blue","change":{"template":"press"}}`).problem(t).Field)
		require.Empty(t, f.puts)
	})
}

// N99, X20
func TestFleetVerbs(t *testing.T) {
	t.Parallel()
	r, f := withFleets(t)
	f.declared(t, "speed-up", fleet.DefaultProject)
	for _, c := range api.FleetTurns() {
		t.Run(c.Verb, func(t *testing.T) {
			f.turns = nil
			a := r.call(r.operator, http.MethodPost, speedUp+"/"+c.Verb, `{"reason":"because"}`, "Idempotency-Key", "k", "If-Match", `"42"`)
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			require.Equal(t, fleetOpPath, a.header.Get("Location"))
			require.Len(t, f.turns, 1)
			turn := f.turns[0]
			require.Equal(t, c.On, turn.On)
			require.Equal(t, "because", turn.Reason)
			require.EqualValues(t, 42, turn.IfMatch)
			require.Equal(t, "k", turn.Idempotency.Key)
			require.Equal(t, http.StatusAccepted, r.call(r.operator, http.MethodPost, speedUp+"/"+c.Verb, nil).status, "no body is needed")
		})
	}

	t.Run("wakes the change when no operation says so", func(t *testing.T) {
		started := f.started
		f.started = func(w postgres.Write) (postgres.Started, error) {
			st, err := started(w)
			st.Operation = nil
			return st, err
		}
		wakes := len(r.wakes())
		a := r.call(r.operator, http.MethodPost, speedUp+"/pause?dryRun=true", nil)
		require.Equal(t, http.StatusOK, a.status)
		require.Len(t, r.wakes(), wakes)
		require.Equal(t, http.StatusOK, r.call(r.operator, http.MethodPost, speedUp+"/pause", nil).status)
		require.Equal(t, "fleet.speed-up", r.wakes()[wakes])
		f.started = started
	})

	t.Run("says what cannot be done, and what can", func(t *testing.T) {
		f.started = func(postgres.Write) (postgres.Started, error) {
			_, err := fleet.FleetSucceeded.Next(fleet.FleetPause)
			return postgres.Started{}, err
		}
		p := r.call(r.operator, http.MethodPost, speedUp+"/pause", nil).problem(t)
		require.Equal(t, http.StatusUnprocessableEntity, p.Status)
		require.Equal(t, "it can retry or rollback", p.Hint)
	})

	t.Run("refuses viewers, what is missing, and what is of others", func(t *testing.T) {
		f.turns = nil
		f.declared(t, "blue", "blue")
		require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, speedUp+"/run", nil).status)
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/fleets/ghost/run", nil).status)
		require.Equal(t, "name", r.call(r.operator, http.MethodPost, "/api/v1/fleets/Ghost/run", nil).problem(t).Field)
		require.Equal(t, "/reason", r.call(r.operator, http.MethodPost, speedUp+"/run", `{"reason":"`+strings.Repeat("x", 1025)+`"}`).problem(t).Field)
		require.Equal(t, "/force", r.call(r.operator, http.MethodPost, speedUp+"/run", `{"force":true}`).problem(t).Field)
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, speedUp+"/promote", nil).status)
		red := r.token("operator", "red")
		require.Equal(t, http.StatusNotFound, r.call(red, http.MethodPost, "/api/v1/fleets/blue/run", nil).status)
		for _, tail := range []string{"", "/runs", "/targets"} {
			require.Equal(t, http.StatusNotFound, r.call(red, http.MethodGet, "/api/v1/fleets/blue"+tail, nil).status)
		}
		require.Empty(t, f.turns)
	})
}

func runSeen(state fleet.FleetState) *fleets.FleetRun {
	return &fleets.FleetRun{
		Fleet: "speed-up", Run: 2, Generation: 3, State: state, Wave: 1, Waves: 2, RequestedBy: "ann", CreatedAt: fleetTime,
		Deadline: fleetTime.Add(time.Hour), Counts: fleet.FleetCounts{Total: 10, Waiting: 6, Delivering: 1, Succeeded: 3},
		PerWave: map[int]fleet.FleetCounts{1: {Total: 4, Succeeded: 3, Delivering: 1}, 2: {Total: 6, Waiting: 6}},
	}
}

// N103, X8, X18
func TestFleetReads(t *testing.T) {
	t.Parallel()
	r, f := withFleets(t)
	f.declared(t, "speed-up", fleet.DefaultProject)

	t.Run("one that was never run", func(t *testing.T) {
		o := into[api.Object](t, r.get(speedUp))
		s := into[api.FleetStatus](t, reply{body: o.Status})
		require.Equal(t, "Declared", s.Phase)
		require.Nil(t, s.Deadline)
		require.Equal(t, "not_released", s.Conditions[0].Reason)
		require.Equal(t, fleet.ConditionUnknown, s.Conditions[1].Status)
		require.Equal(t, http.StatusNotFound, r.get(speedUp+"/targets").status)
	})

	t.Run("one that runs, alone and in a list", func(t *testing.T) {
		f.run = runSeen(fleet.FleetRunning)
		s := into[api.FleetStatus](t, reply{body: into[api.Object](t, r.get(speedUp)).Status})
		require.Equal(t, "Running", s.Phase)
		require.EqualValues(t, 2, s.Run)
		require.EqualValues(t, 3, s.ObservedGeneration)
		require.Equal(t, []fleet.FleetCounts{f.run.PerWave[1], f.run.PerWave[2]}, s.PerWave)
		require.Equal(t, "delivering", s.Reason)
		require.Equal(t, "wave 1 of 2: 3 of 10 instances are done", s.Message)
		require.Equal(t, fleet.ConditionFalse, s.Conditions[0].Status)
		f.run.PerWave = nil
		l := into[api.List[api.Object]](t, r.get("/api/v1/fleets"))
		require.Len(t, l.Items, 1)
		s = into[api.FleetStatus](t, reply{body: l.Items[0].Status})
		require.Equal(t, 10, s.Counts.Total)
		require.Empty(t, s.PerWave)
	})

	t.Run("one that waits says when the next of its windows opens", func(t *testing.T) {
		f.run, f.staged = runSeen(fleet.FleetRunning), []fleet.SiteName{"plant-1", "plant-2"}
		f.run.Counts.Staged, f.run.Counts.Delivering = 1, 0
		f.run.Spec.Windows = []fleet.Window{
			{Sites: []fleet.SiteName{"plant-1"}, From: "22:00", To: "23:00"},
			{Sites: []fleet.SiteName{"plant-2"}, From: "21:30", To: "23:00"},
			{Sites: []fleet.SiteName{"plant-3"}, From: "11:00", To: "12:00"},
		}
		const want = "wave 1 of 2: 3 of 10 instances are done, 1 are fetched and wait for their window, which opens at 2026-05-04T21:30:00Z"
		s := into[api.FleetStatus](t, reply{body: into[api.Object](t, r.get(speedUp)).Status})
		require.Equal(t, want, s.Message)
		f.operations = []postgres.Operation{{
			ID: "0123456789abcdef0123456789abcdef", Kind: fleet.OperationFleet, Fleet: "speed-up", Project: fleet.DefaultProject,
			Subject: "fleet.speed-up", State: fleet.OperationRunning, EntityRun: "run-1", CreatedAt: fleetTime, Deadline: fleetTime,
		}}
		require.Equal(t, want, into[api.Operation](t, r.get(fleetOpPath)).Message)
	})

	t.Run("runs, newest first, page by page", func(t *testing.T) {
		f.runs = func(before int64, limit int32) []fleets.FleetRun {
			require.EqualValues(t, 2, limit)
			if before == 0 {
				return []fleets.FleetRun{*runSeen(fleet.FleetRunning), {Run: 1, State: fleet.FleetCancelled, Reason: "cancelled"}}
			}
			require.EqualValues(t, 2, before)
			return []fleets.FleetRun{{Run: 1, State: fleet.FleetCancelled, Reason: "cancelled"}}
		}
		first := into[api.List[api.FleetRun]](t, r.get(speedUp+"/runs?limit=1"))
		require.EqualValues(t, 2, first.Items[0].Run)
		second := into[api.List[api.FleetRun]](t, r.get(speedUp+"/runs?limit=1&cursor="+first.Next))
		require.Equal(t, fleet.FleetCancelled, second.Items[0].State)
		require.Empty(t, second.Next)
		require.Equal(t, "cursor", r.get(speedUp+"/runs?cursor=eA").problem(t).Field)
	})

	t.Run("targets of the run that the first page was of", func(t *testing.T) {
		f.run = runSeen(fleet.FleetRunning)
		var asked fleets.FleetTargetFilter
		f.targets = func(filter fleets.FleetTargetFilter) []fleets.FleetTargetView {
			asked = filter
			return []fleets.FleetTargetView{
				{Site: "plant-1", Instance: "a", Wave: 1, State: fleet.FleetTargetFailed, Reason: "apply_failed", Message: "no", Tries: 2, Updated: fleetTime},
				{Site: "plant-1", Instance: "b"},
			}
		}
		first := into[api.List[api.FleetTarget]](t, r.get(speedUp+"/targets?limit=1&state=failed"))
		require.Equal(t, fleets.FleetTargetFilter{Fleet: "speed-up", Run: 2, State: "failed", Limit: 2}, asked)
		require.Equal(t, api.FleetTarget{
			Site: "plant-1", Instance: "a", Wave: 1, State: "failed", Reason: "apply_failed", Message: "no", Tries: 2, UpdatedAt: fleetTime,
		}, first.Items[0])
		f.run.Run = 3 // another began
		r.get(speedUp + "/targets?limit=1&state=failed&cursor=" + first.Next)
		require.Equal(t, fleets.FleetTargetFilter{Fleet: "speed-up", Run: 2, State: "failed", AfterSite: "plant-1", AfterName: "a", Limit: 2}, asked)
		for query, field := range map[string]string{
			"cursor=eA": "cursor", "run=3&cursor=" + first.Next: "cursor", "cursor=" + cursorOf("2 plant-1 A"): "cursor",
			"cursor=" + cursorOf("0 a b"): "cursor", "state=done": "state", "run=-1": "run", "run=9": "run", "limit=0": "limit",
		} {
			require.Equal(t, field, r.get(speedUp+"/targets?"+query).problem(t).Field, query)
		}
	})
}

// N103, X8
func TestFleetOperations(t *testing.T) {
	t.Parallel()
	r, f := withFleets(t)
	st, err := f.started(postgres.Write{Key: fleet.ObjectKey{Kind: fleet.KindFleet, Name: "speed-up"}})
	require.NoError(t, err)
	read := func() api.Operation {
		f.operations = []postgres.Operation{*st.Operation}
		return into[api.Operation](t, r.get(fleetOpPath))
	}

	t.Run("say what they wait for", func(t *testing.T) {
		require.Equal(t, "queued", read().Reason)
		st.Operation.EntityRun, st.Operation.Revision = "run-1", 2
		f.run = runSeen(fleet.FleetRunning)
		o := read()
		require.Equal(t, "delivering", o.Reason)
		require.Equal(t, "wave 1 of 2: 3 of 10 instances are done", o.Message)
		require.Equal(t, f.run.Counts, o.FleetRun.Counts)
		require.Equal(t, "http://web.test/namespaces/holdfast/workflows/fleet.speed-up/run-1/history", o.Workflow.URL)
		require.Empty(t, o.Progress)
		require.Zero(t, o.Revision)
		f.run = runSeen(fleet.FleetPaused)
		require.Equal(t, "paused", read().Reason)
	})

	t.Run("show no newer run than their own", func(t *testing.T) {
		ended := fleetTime.Add(-time.Second)
		st.Operation.EndedAt, st.Operation.State = &ended, fleet.OperationSucceeded
		require.Nil(t, read().FleetRun)
		ended = fleetTime.Add(time.Second)
		require.NotNil(t, read().FleetRun)
	})

	t.Run("are listed by their fleet change", func(t *testing.T) {
		l := into[api.List[api.Operation]](t, r.get("/api/v1/operations?fleet=speed-up"))
		require.Equal(t, fleet.FleetName("speed-up"), f.filter.Fleet)
		require.Equal(t, "speed-up", l.Items[0].Fleet)
	})
}

// X18
func TestFleetStatus(t *testing.T) {
	t.Parallel()
	of := func(change func(*fleetSeen)) api.FleetStatus {
		seen := fleetSeen{object: fleet.Object{Generation: 3, UpdatedAt: fleetTime}, FleetRun: *runSeen(fleet.FleetSucceeded)}
		ended := fleetTime.Add(time.Minute)
		seen.Counts, seen.EndedAt = fleet.FleetCounts{Total: 10, Succeeded: 9, Superseded: 1}, &ended
		change(&seen)
		return seen.status()
	}
	for _, c := range []struct {
		name   string
		change func(*fleetSeen)
		phase  string
		synced fleet.ConditionStatus
		why    string
		well   fleet.ConditionStatus
	}{
		{"all is done", func(*fleetSeen) {}, "Succeeded", "true", "as_declared", "true"},
		{"the spec was changed since", func(s *fleetSeen) { s.object.Generation = 4 }, "Succeeded", "false", "not_released", "true"},
		{"some failed", func(s *fleetSeen) { s.Counts.Failed = 1 }, "Succeeded", "false", "targets_failed", "false"},
		{"it stopped", func(s *fleetSeen) { s.State, s.Reason = fleet.FleetStopped, "error_threshold" }, "Stopped", "false", "given_up", "false"},
		{"it was cancelled", func(s *fleetSeen) { s.State = fleet.FleetCancelled }, "Cancelled", "false", "cancelled", "true"},
		{"it ends", func(s *fleetSeen) { s.State, s.Cancel = fleet.FleetRunning, true }, "Running", "false", "cancelled", "true"},
		{"it was paused", func(s *fleetSeen) { s.State = fleet.FleetPaused }, "Paused", "false", "paused", "true"},
		{"it was taken back", func(s *fleetSeen) { s.RollbackOf = 1 }, "Succeeded", "false", "rolled_back", "true"},
		{"it is being deleted", func(s *fleetSeen) { s.object.DeletingSince = &fleetTime }, "Deleting", "false", "deleting", "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := of(c.change)
			require.Equal(t, c.phase, s.Phase)
			require.Equal(t, c.synced, s.Conditions[0].Status)
			require.Equal(t, c.why, s.Conditions[0].Reason)
			require.Equal(t, c.well, s.Conditions[1].Status)
			require.False(t, s.Conditions[0].Since.IsZero())
		})
	}
}

func TestListOperationsOfAFleetChange(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for id, of := range map[string][2]string{
		"a": {"fleet", "fleet.speed-up"}, "b": {"deploy", "instance.plant-1.speed-up"}, "c": {"reconcile", "node.speed-up"},
	} {
		r.sql(`INSERT INTO operations (id, kind, site, name, subject, project, state, requested_by, deadline_at)
			VALUES ($1, $2, '', 'speed-up', $3, 'default', 'running', 'test', now())`, strings.Repeat(id, 32), of[0], of[1])
	}
	for _, c := range []struct {
		filter postgres.OperationFilter
		kind   fleet.OperationKind
	}{
		{postgres.OperationFilter{Fleet: "speed-up"}, fleet.OperationFleet},
		{postgres.OperationFilter{Instance: "speed-up"}, fleet.OperationDeploy},
		{postgres.OperationFilter{Node: "speed-up"}, fleet.OperationReconcile},
	} {
		ops, err := r.store.ListOperations(t.Context(), c.filter, postgres.Place{}, 10)
		require.NoError(t, err)
		require.Len(t, ops, 1)
		require.Equal(t, c.kind, ops[0].Kind)
	}
}
