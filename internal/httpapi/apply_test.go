package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func applied(a api.Applied) string {
	var all []string
	for _, o := range a.Objects {
		text := o.Name + " " + o.Action
		if o.Operation != nil {
			text += " " + o.Operation.Kind
		}
		if o.Problem != nil {
			text += " failed"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// N107: what a plan is applied to is what it was made from, or nothing is applied.
func TestApplyOfAPlan(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/templates/oven", `{"base":{"temp":1}}`)
	body := []string{
		instanceManifest("a", `{"config":{"v":1}}`), instanceManifest("b", `{"config":{"v":1}}`), instanceManifest("c", `{"template":"oven"}`),
	}
	require.Zero(t, r.apply(many("", body...)).Failed)
	next := []string{instanceManifest("a", `{"config":{"v":2}}`), body[1], instanceManifest("c", `{"template":"oven","overrides":{"v":2}}`), instanceManifest("d", `{"config":{}}`)}

	for _, move := range []struct {
		name string
		do   func()
		says string
	}{ // in this order: the last one needs what the one before it made
		{"an object that changes was written", func() { r.put("/api/v1/sites/plant-1/instances/a", `{"config":{"v":7}}`) }, "instance/plant-1/a: it was planned from generation"},
		{"an unchanged one was written", func() { r.put("/api/v1/sites/plant-1/instances/b", `{"config":{"v":7}}`) }, "instance/plant-1/b: it was planned"},
		{"only labels were written", func() { r.put("/api/v1/sites/plant-1/instances/b", `{"config":{"v":7},"labels":{"x":"y"}}`) }, "instance/plant-1/b: it was planned"},
		{"a template that is pinned anew", func() { r.put("/api/v1/templates/oven", `{"base":{"temp":2}}`) }, "instance/plant-1/c: it would be written in another way"},
		{"a new one was made by another", func() { r.put("/api/v1/sites/plant-1/instances/d", `{"config":{"v":7}}`) }, "instance/plant-1/d: it was planned from generation 0 and is at 1"},
		{"one was deleted", func() {
			require.Less(t, r.call(r.operator, http.MethodDelete, "/api/v1/sites/plant-1/instances/d", nil).status, 300)
		}, "instance/plant-1/d: it"},
	} {
		name := move.name
		p := r.plan(many("", next...))
		move.do()
		before := r.rows()
		a := r.call(r.operator, http.MethodPost, applyPath, many(bound(t, p), next...))
		require.Equal(t, http.StatusPreconditionFailed, a.status, name+string(a.body))
		require.Contains(t, a.problem(t).Detail, move.says, name)
		require.Len(t, a.problem(t).Objects, 1, name)
		require.Equal(t, before, r.rows(), name)
	}

	p := r.plan(many("", next...))
	for name, other := range map[string]string{
		"another config":  strings.Replace(many(bound(t, p), next...), `{"config":{"v":2}}`, `{"config":{"v":3}}`, 1),
		"one more":        many(bound(t, p), append(next, instanceManifest("e", `{"config":{}}`))...),
		"one less":        many(bound(t, p), next[:3]...),
		"a forged digest": strings.Replace(many(bound(t, p), next...), p.Digest, strings.Repeat("0", 64), 1),
	} {
		a := r.call(r.operator, http.MethodPost, applyPath, other)
		require.Equal(t, http.StatusPreconditionFailed, a.status, name+string(a.body))
	}
	require.Equal(t, "a change deploy, b change deploy, c change deploy, d create deploy", applied(r.apply(many(bound(t, p), next...))))
	require.Equal(t, http.StatusPreconditionFailed, r.call(r.operator, http.MethodPost, applyPath, many(bound(t, p), next...)).status)
}

// N107: of two requests with one plan, one applies it whole and the other nothing.
func TestApplyOfAPlanTwiceAtOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	var body []string
	for i := range 40 {
		body = append(body, instanceManifest(fmt.Sprintf("i%d", i), `{"config":{}}`))
	}
	request := many(bound(t, r.plan(many("", body...))), body...)
	var replies [4]reply
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = r.call(r.operator, http.MethodPost, applyPath, request) })
	}
	all.Wait()
	won := 0
	for _, a := range replies {
		if a.status == http.StatusAccepted {
			won++
			require.Zero(t, into[api.Applied](t, a).Failed)
			continue
		}
		require.Equal(t, http.StatusPreconditionFailed, a.status, string(a.body))
	}
	require.Equal(t, 1, won)
	require.Equal(t, 40, r.rows()["revisions"])
}

// X2: a request whose answer was lost is sent again under its key, and goes on where it was.
func TestApplyIsRepeatable(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	old := instanceManifest("old", `{"config":{}}`)
	require.Zero(t, r.apply(many(`"applySet":"line"`, old)).Failed)
	body := []string{instanceManifest("a", `{"config":{}}`), instanceManifest("b", `{"config":{}}`), `{"kind":"Template","name":"t","spec":{"base":{}}}`, instanceManifest("c", `{"template":"t"}`)}
	with := `"applySet":"line","prune":true`
	request := many(with+","+bound(t, r.plan(many(with, body...))), body...)
	first := r.call(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, first.status, string(first.body))
	require.Equal(t, "t create, a create deploy, b create deploy, c create deploy, old delete delete", applied(into[api.Applied](t, first)))
	before := r.rows()
	again := r.call(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, again.status, string(again.body))
	for i, o := range into[api.Applied](t, again).Objects {
		require.Equal(t, into[api.Applied](t, first).Objects[i].Operation, o.Operation)
	}
	after := r.rows()
	before["wakes"], after["wakes"] = 0, 0
	require.Equal(t, before, after)

	// Half of it was done when the server died.
	r.sql(`DELETE FROM idempotency WHERE key = $1`, string(compose.HashOf([]byte("k\n"+fleet.InstanceKey("plant-1", "b").String()))))
	r.sql(`DELETE FROM objects WHERE name = 'b'`)
	again = r.call(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, again.status, string(again.body))
	require.Zero(t, into[api.Applied](t, again).Failed)
	require.Equal(t, http.StatusOK, r.get("/api/v1/sites/plant-1/instances/b").status)

	a := r.call(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "other")
	require.Equal(t, http.StatusPreconditionFailed, a.status, "another request with the plan")
}

func TestPrune(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	a, b := instanceManifest("a", `{"config":{}}`), instanceManifest("b", `{"config":{}}`)
	require.Zero(t, r.apply(many(`"applySet":"line"`, a, b, `{"kind":"Template","name":"t","spec":{"base":{}}}`, `{"kind":"Project","name":"p"}`)).Failed)
	require.Zero(t, r.apply(many(`"applySet":"other"`, instanceManifest("c", `{"config":{}}`))).Failed)
	require.Zero(t, r.apply(many("", instanceManifest("d", `{"config":{}}`))).Failed)

	t.Run("is not done unasked, and said", func(t *testing.T) {
		p := r.plan(many(`"applySet":"line"`, a))
		require.Equal(t, []api.PlanKey{{Kind: "instance", Site: "plant-1", Name: "b"}, {Kind: "project", Name: "p"}, {Kind: "template", Name: "t"}}, p.WouldPrune)
		require.False(t, p.Changes)
		require.Equal(t, "a unchanged", applied(r.apply(many(`"applySet":"line"`, a))))
	})

	t.Run("takes instances first, and nothing of another set or none", func(t *testing.T) {
		p := r.plan(many(`"applySet":"line","prune":true`, a))
		require.Equal(t, "a unchanged, b delete, t delete, p delete", actions(p))
		require.EqualValues(t, 1, planOf(t, p, "b").Generation)
		require.Empty(t, p.WouldPrune)
		require.Equal(t, "a unchanged, b delete delete, t delete, p delete", applied(r.apply(many(`"applySet":"line","prune":true,`+bound(t, p), a))))
		require.False(t, r.plan(many(`"applySet":"line","prune":true`, a)).Changes, "what is being deleted is not deleted again")
		require.Equal(t, http.StatusOK, r.get("/api/v1/sites/plant-1/instances/c").status)
		require.Equal(t, http.StatusOK, r.get("/api/v1/sites/plant-1/instances/d").status)
	})

	t.Run("is for operators what their role may delete", func(t *testing.T) {
		require.Zero(t, r.apply(many(`"applySet":"line"`, a, `{"kind":"Project","name":"q"}`)).Failed)
		got := r.call(r.operator, http.MethodPost, applyPath, many(`"applySet":"line","prune":true`, a))
		require.Equal(t, http.StatusForbidden, got.status, string(got.body))
		require.Contains(t, got.problem(t).Detail, "project/q")
	})

	t.Run("does not touch what the request names but is refused", func(t *testing.T) {
		p := r.plan(many(`"applySet":"line","prune":true`, instanceManifest("a", `{}`)))
		require.Equal(t, "a refused, q delete", actions(p))
		require.False(t, p.Valid)
		before := r.rows()
		got := r.call(r.admin, http.MethodPost, applyPath, many(`"applySet":"line","prune":true`, instanceManifest("a", `{}`)))
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Contains(t, got.problem(t).Detail, "nothing was applied: 1 objects are refused: instance/plant-1/a:")
		require.Equal(t, before, r.rows())
	})

	t.Run("never takes over what belongs to another set", func(t *testing.T) {
		for with, name := range map[string]string{`"applySet":"line"`: "c", "": "c"} {
			p := r.plan(many(with, instanceManifest(name, `{"config":{}}`)))
			require.Contains(t, p.Objects[0].Problem.Detail, "belongs to apply set other")
		}
		require.Equal(t, api.PlanChange, r.plan(many(`"applySet":"line"`, instanceManifest("d", `{"config":{}}`))).Objects[0].Action, "one of no set may join")
		p := r.plan(many(`"applySet":"line"`, `{"kind":"Project","name":"z","labels":{"holdfast.dev/apply-set":"x"}}`))
		require.Equal(t, "/objects/0/labels", p.Objects[0].Problem.Field)
	})

	t.Run("of everything is asked for by no objects", func(t *testing.T) {
		require.Equal(t, "c delete", actions(r.plan(many(`"applySet":"other","prune":true`))))
	})
}

// What one PUT asks for, an apply of many asks for too.
func TestApplyKeepsToRolesAndProjects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/projects/line-a", nil)
	r.put("/api/v1/projects/line-b", nil)
	r.put("/api/v1/sites/plant-2", `{"project":"line-b","nodes":[{"name":"plant-2-a","role":"active"}]}`)
	r.put("/api/v1/templates/secret", `{"project":"line-b","base":{}}`)
	r.put("/api/v1/sites/plant-2/instances/x", `{"project":"line-b","config":{}}`)
	lineA := r.token("operator", "line-a")
	as := func(token string, manifests ...string) api.Plan {
		a := r.call(token, http.MethodPost, planPath, many(`"applySet":"line"`, manifests...))
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return into[api.Plan](t, a)
	}
	denied := api.ProblemPrefix + string(fleet.Denied)
	require.Equal(t, denied, as(r.operator, siteManifest("plant-3")).Objects[0].Problem.Type)
	require.Equal(t, "plant-1 unchanged", actions(into[api.Plan](t, r.call(r.operator, http.MethodPost, planPath, many("", siteManifest("plant-1"))))))

	require.Equal(t, "line-a", as(lineA, instanceManifest("a", `{"config":{}}`)).Objects[0].Project)
	for _, refused := range []string{
		`{"kind":"Instance","name":"a","site":"plant-1","project":"line-b","spec":{"config":{}}}`,
		`{"kind":"Instance","name":"a","site":"plant-2","spec":{"config":{}}}`,
		`{"kind":"Instance","name":"x","site":"plant-2","spec":{"config":{}}}`,
		instanceManifest("a", `{"template":"secret"}`), `{"kind":"Template","name":"secret","spec":{"base":{}}}`,
		`{"kind":"Template","name":"mine","spec":{"base":{},"compositions":["secret"]}}`, `{"kind":"Project","name":"line-c"}`,
	} {
		p := as(lineA, refused)
		require.NotNil(t, p.Objects[0].Problem, refused)
		require.NotContains(t, p.Objects[0].Problem.Detail+p.Objects[0].Problem.Hint, "line-b", refused)
		require.Empty(t, p.Objects[0].ResourceVersion, refused)
	}
	r.sql(`UPDATE objects SET labels = '{"holdfast.dev/apply-set":"line"}' WHERE name = 'x'`)
	require.Empty(t, as(lineA).WouldPrune, "of another project")
}

// What fails after the checks is told per object, and the rest is applied.
func TestApplyInPart(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	require.Zero(t, r.apply(many(`"applySet":"line"`, siteManifest("plant-2"), `{"kind":"Instance","name":"a","site":"plant-2","spec":{"config":{}}}`)).Failed)
	got := r.apply(many(`"applySet":"line","prune":true`, instanceManifest("b", `{"config":{}}`)))
	require.Equal(t, "b create deploy, a delete delete, plant-2 delete failed", applied(got))
	require.Equal(t, 1, got.Failed)
	require.Contains(t, got.Objects[2].Problem.Detail, "still use")
}

// X2: a request that is cut off in the middle, and sent again under its key, does each thing once.
func TestApplyCutOff(t *testing.T) {
	t.Parallel()
	const count = 300
	r := setup(t)
	r.site()
	var body []string
	for i := range count {
		body = append(body, instanceManifest(fmt.Sprintf("i%d", i), fmt.Sprintf(`{"config":{"n":%d}}`, i)))
	}
	request := many(bound(t, r.plan(many("", body...))), body...)
	ctx, cut := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		resp, err := plain.Do(r.request(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "k").WithContext(ctx))
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return r.rows()["revisions"] > count/10 }, time.Minute, time.Millisecond)
	cut()
	if err := <-done; err != nil { // it may have been quicker
		require.ErrorIs(t, err, context.Canceled)
	}
	again := r.call(r.operator, http.MethodPost, applyPath, request, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, again.status, string(again.body))
	require.Zero(t, into[api.Applied](t, again).Failed)
	rows := r.rows()
	require.Equal(t, count, rows["revisions"])
	require.Equal(t, count, rows["operations"])
}
