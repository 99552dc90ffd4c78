package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/executors"
	"github.com/holdfast-io/holdfast/internal/store"
)

// moduleRegion is a region whose pool reads its own database.
func moduleRegion(t *testing.T) *region {
	t.Helper()
	return setup(t, func(d *Deps) {
		store, _ := d.Store.(*store.Store)
		pool := executors.New(executors.Options{Directory: store, Now: now})
		t.Cleanup(pool.Close)
		d.Executor = pool
	})
}

// upper is a provider that answers what it is given, louder.
type upper struct {
	nodev1.UnimplementedExecutorServer
	calls atomic.Int64
	ids   chan string
}

func (u *upper) Execute(_ context.Context, in *nodev1.ExecuteRequest) (*nodev1.ExecuteResponse, error) {
	u.calls.Add(1)
	u.ids <- in.GetExecutionId()
	if strings.Contains(string(in.GetInput()), "fail") {
		return nil, status.Error(codes.InvalidArgument, "no such lens")
	}
	return &nodev1.ExecuteResponse{Output: []byte(strings.ToUpper(string(in.GetInput())))}, nil
}

// provider serves an executor and registers it under a connection id of digits.
func (r *region) provider(digit string, modules ...string) *upper {
	r.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	server, u := grpc.NewServer(), &upper{ids: make(chan string, 100)}
	nodev1.RegisterExecutorServer(server, u)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with Stop
	}()
	r.t.Cleanup(func() {
		server.Stop()
		<-done
	})
	r.registered(digit, listener.Addr().String(), modules...)
	return u
}

func connectionID(digit string) string { return strings.Repeat(digit, 32) }

func (r *region) registered(digit, address string, modules ...string) {
	r.t.Helper()
	r.sql(`INSERT INTO connections (id, state, identity, provider, module_namespace, group_id, executor, protocol, server, active_at)
		VALUES ($1, 'Active', 'token:' || $1, 'cam-' || $2, 'acme.vision', 'cams', $3, 1, 's', now())`, connectionID(digit), digit, address)
	for _, m := range modules {
		r.sql(`INSERT INTO modules (connection, module_namespace, name, description, input_schema)
			VALUES ($1, 'acme.vision', $2, 'finds things', '{"type":"object","properties":{"size":{"type":"integer"}}}')`, connectionID(digit), m)
	}
}

const detectPath = "/api/v1/modules/acme.vision.Detect"

// C14, C68: what is offered is read from the live connections.
func TestListModules(t *testing.T) {
	t.Parallel()
	r := moduleRegion(t)
	require.Equal(t, http.StatusNotFound, r.get(detectPath).status)
	r.registered("1", "127.0.0.1:1", "Detect", "Track")
	r.registered("2", "127.0.0.1:2", "Detect")
	r.sql(`UPDATE connections SET drain_asked_at = now(), drain_deadline = now() WHERE id = $1`, connectionID("2"))

	first := into[api.List[api.Module]](t, r.get("/api/v1/modules?limit=1"))
	require.Len(t, first.Items, 1)
	m := first.Items[0]
	require.Equal(t, "acme.vision.Detect", m.Name)
	require.Equal(t, "cams", m.Group)
	require.Len(t, m.Members, 2)
	require.Equal(t, 1, m.Callable)
	require.JSONEq(t, `{"type":"object","properties":{"size":{"type":"integer"}}}`, string(m.InputSchema))
	rest := into[api.List[api.Module]](t, r.get("/api/v1/modules?limit=1&cursor="+first.Next))
	require.Equal(t, "acme.vision.Track", rest.Items[0].Name)
	require.Empty(t, rest.Next)
	require.Empty(t, into[api.List[api.Module]](t, r.get("/api/v1/modules?namespace=acme.other")).Items)
	require.Equal(t, 1, into[api.Module](t, r.get(detectPath)).Callable)
	require.Equal(t, http.StatusBadRequest, r.get("/api/v1/modules/nothing").status)

	r.sql(`UPDATE connections SET state = 'Disconnected', reason = 'heartbeat_lapsed', ended_at = now()`)
	require.Empty(t, into[api.List[api.Module]](t, r.get("/api/v1/modules")).Items)
	require.Equal(t, http.StatusNotFound, r.get(detectPath).status)
	a := r.call(r.operator, http.MethodPost, detectPath+"/execute", `{}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.problem(t).Detail, "heartbeat_lapsed")
	require.Equal(t, "start a provider that offers it", a.problem(t).Hint)
}

// X10, X19, X20
func TestExecute(t *testing.T) {
	t.Parallel()
	r := moduleRegion(t)
	u := r.provider("1", "Detect")
	do := func(token, query, body string, headers ...string) reply {
		return r.call(token, http.MethodPost, detectPath+"/execute"+query, body, headers...)
	}
	a := do(r.operator, "", `{"image":"a"}`)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, `{"IMAGE":"A"}`, string(a.body))
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Len(t, <-u.ids, 32)

	t.Run("refuses what is wrong and asks nobody", func(t *testing.T) {
		before := u.calls.Load()
		require.Equal(t, http.StatusForbidden, do(r.viewer, "", `{}`).status)
		require.Equal(t, http.StatusUnauthorized, do("", "", `{}`).status)
		p := do(r.operator, "", `{"size":"s3cret"}`).problem(t)
		require.Equal(t, "holdfast:problems/invalid", p.Type)
		require.Equal(t, "/size", p.Field)
		require.NotContains(t, r.log.String(), "s3cret")
		for query, status := range map[string]int{
			"?timeout=0": http.StatusBadRequest, "?timeout=61": http.StatusBadRequest, "?durabel=true": http.StatusBadRequest,
			"?durable=true&timeout=3601": http.StatusBadRequest,
		} {
			require.Equal(t, status, do(r.operator, query, `{}`).status, query)
		}
		require.Equal(t, http.StatusBadRequest, do(r.operator, "", `{`).status)
		require.Equal(t, http.StatusRequestEntityTooLarge, do(r.operator, "", `"`+strings.Repeat("x", fleet.MaxDirectInput)+`"`).status)
		require.Equal(t, http.StatusRequestEntityTooLarge, do(r.operator, "?durable=true", `{"a":"`+strings.Repeat("x", fleet.MaxDurableInput)+`"}`).status)
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/modules/acme.vision.Nothing/execute", `{}`).status)
		require.Equal(t, http.StatusOK, do(r.operator, "?dryRun=true", `{}`).status)
		require.Equal(t, before, u.calls.Load())
	})

	t.Run("gives a module's own error as it is", func(t *testing.T) {
		p := do(r.operator, "", `{"x":"fail"}`).problem(t)
		<-u.ids
		require.Equal(t, "holdfast:problems/apply_failed", p.Type)
		require.Equal(t, "the module says: no such lens", p.Hint)
	})

	t.Run("answers a repeat under a key from the first", func(t *testing.T) {
		before := u.calls.Load()
		first := do(r.operator, "", `{"n":"k"}`, "Idempotency-Key", "once")
		again := do(r.operator, "", `{"n":"k"}`, "Idempotency-Key", "once")
		require.Equal(t, first.body, again.body)
		require.Equal(t, before+1, u.calls.Load())
		id := <-u.ids
		require.Equal(t, http.StatusConflict, do(r.operator, "", `{"n":"other"}`, "Idempotency-Key", "once").status)
		// The server died before it kept the answer: the same execution is asked again.
		r.sql(`DELETE FROM executions`)
		require.Equal(t, first.body, do(r.operator, "", `{"n":"k"}`, "Idempotency-Key", "once").body)
		require.Equal(t, id, <-u.ids)
	})

	t.Run("takes a project's token", func(t *testing.T) {
		r.put("/api/v1/projects/line-a", map[string]any{})
		require.Equal(t, http.StatusOK, do(r.token("operator", "line-a"), "", `{}`).status)
		<-u.ids
	})
}

// X4, X8, X27: a durable execution is an operation; its output is read beside it.
func TestExecuteDurable(t *testing.T) {
	t.Parallel()
	r := moduleRegion(t)
	r.registered("1", "127.0.0.1:1", "Detect")
	ask := func(headers ...string) api.Operation {
		a := r.call(r.operator, http.MethodPost, detectPath+"/execute?durable=true&timeout=60", `{"image":"a"}`, headers...)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		op := into[api.Accepted](t, a).Operation
		require.Equal(t, "/api/v1/operations/"+op.ID, a.header.Get("Location"))
		return *op
	}
	op := ask("Idempotency-Key", "k")
	require.Equal(t, "execute", op.Kind)
	require.Equal(t, "acme.vision.Detect", op.Module)
	require.Equal(t, op.ID, ask("Idempotency-Key", "k").ID)
	require.Equal(t, []string{"execution." + op.ID, "execution." + op.ID}, r.wakes())
	require.Equal(t, "queued", into[api.Operation](t, r.get("/api/v1/operations/"+op.ID)).Reason)
	output := "/api/v1/operations/" + op.ID + "/output"
	require.Equal(t, http.StatusUnprocessableEntity, r.call(r.operator, http.MethodGet, output, nil).status)

	end := fleet.ExecutionEnd{Operation: fleet.OperationID(op.ID), State: fleet.OperationSucceeded, Output: []byte(`{"n":1}`)}
	require.NoError(t, r.store.EndExecution(t.Context(), end))
	late := end
	late.State, late.Output = fleet.OperationFailed, nil
	require.NoError(t, r.store.EndExecution(t.Context(), late), "what ended it first stays")
	require.Equal(t, `{"n":1}`, string(r.call(r.operator, http.MethodGet, output, nil).body))
	require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodGet, output, nil).status)
	r.sql(`UPDATE executions SET expires_at = now()`)
	require.Equal(t, http.StatusGone, r.call(r.operator, http.MethodGet, output, nil).status)
	_, err := r.store.Purge(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, http.StatusGone, r.call(r.operator, http.MethodGet, output, nil).status)

	failing := ask()
	require.NoError(t, r.store.EndExecution(t.Context(), fleet.ExecutionEnd{
		Operation: fleet.OperationID(failing.ID), State: fleet.OperationFailed, Reason: "apply_failed", Failure: "no such lens",
	}))
	p := r.call(r.operator, http.MethodGet, "/api/v1/operations/"+failing.ID+"/output", nil).problem(t)
	require.Equal(t, "no such lens", p.Hint)
	require.NotContains(t, string(r.get("/api/v1/operations/"+failing.ID).body), "lens")

	cancelled := ask()
	a := r.call(r.operator, http.MethodPost, "/api/v1/operations/"+cancelled.ID+"/cancel", nil)
	require.Equal(t, fleet.OperationCancelled, into[api.Accepted](t, a).Operation.State)
	_, err = r.store.ServeExecution(t.Context(), fleet.OperationID(cancelled.ID), "run", "b")
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	waiting, err := r.store.WaitingWakes(t.Context(), 0, 100)
	require.NoError(t, err)
	require.NotContains(t, waiting, "execution."+cancelled.ID, "nobody is woken for it any more")
	require.Contains(t, fmt.Sprint(waiting), "execution."+failing.ID)
}

// The pool hears of changes from the database.
func TestListenConnections(t *testing.T) {
	t.Parallel()
	r := moduleRegion(t)
	ctx, cancel := context.WithCancel(t.Context())
	began, heard, ended := make(chan struct{}), make(chan fleet.ConnectionID, 10), make(chan error, 1)
	go func() {
		ended <- r.store.ListenConnections(ctx, func() { close(began) }, func(id fleet.ConnectionID) { heard <- id })
	}()
	<-began
	r.sql(`SELECT pg_notify('holdfast_link', $1 || ' drain_asked')`, connectionID("7"))
	r.sql(`SELECT pg_notify('holdfast_link', $1)`, connectionID("8"))
	for _, digit := range []string{"7", "8"} {
		select {
		case id := <-heard:
			require.Equal(t, connectionID(digit), string(id))
		case <-time.After(patience):
			require.Fail(t, "nothing was heard")
		}
	}
	cancel()
	require.Error(t, <-ended)
}
