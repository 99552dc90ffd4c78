package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/modules"
)

type listModulesInput struct {
	Limit     int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor    string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
	Namespace string `query:"namespace" maxLength:"131" doc:"only the modules of this prefix"`
}

type modulesOutput struct{ Body api.List[api.Module] }

// ModuleParam names a module in a path.
type ModuleParam struct {
	Module string `path:"module" maxLength:"200" doc:"prefix and name, for example acme.vision.Detect"`
}

type moduleOutput struct{ Body api.Module }

type executeInput struct {
	ModuleParam
	AskParams
	Timeout int  `query:"timeout" minimum:"1" maximum:"3600" doc:"seconds; at most 60 unless it is durable"`
	Durable bool `query:"durable" doc:"answer 202 with an operation, which outlives servers and providers"`
}

type executeOutput struct {
	Status      int
	Location    string `header:"Location"`
	ContentType string `header:"Content-Type"`
	Body        []byte `contentType:"application/json"`
}

const modulePath = "/api/v1/modules/{module}"

func (s *server) mountModules() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/modules", "list-modules", "List what providers offer"), s.listModules)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, modulePath, "get-module", "Read what is offered under one name"), s.getModule)
	execute := serve.Endpoint(http.MethodPost, modulePath+"/execute", "execute-module", "Run a module with the JSON of the body")
	serve.Register(s.Server, serve.ForOperators, execute, s.execute)
	serve.Takes[any](s.Server, execute)
	output := serve.Endpoint(http.MethodGet, "/api/v1/operations/{id}/output", "get-operation-output", "Read what a durable execution answered")
	serve.Register(s.Server, serve.ForOperators, output, s.executionOutput)
}

func (s *server) listModules(ctx context.Context, in *listModulesInput) (*modulesOutput, error) {
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(place, " ")
	after := fleet.ModuleRef{Namespace: fleet.ModuleNamespace(namespace), Name: fleet.ModuleName(name)}
	rows, err := s.store.ListModules(ctx, fleet.ModuleNamespace(in.Namespace), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(m fleet.Module) string { return string(m.Namespace) + " " + string(m.Name) })
	out := &modulesOutput{Body: api.List[api.Module]{Items: make([]api.Module, len(cut.Items)), Next: cut.Next}}
	for i, m := range cut.Items {
		out.Body.Items[i] = moduleView(m)
	}
	return out, nil
}

func (s *server) getModule(ctx context.Context, in *ModuleParam) (*moduleOutput, error) {
	ref, err := fleet.ParseModule("module", in.Module)
	if err != nil {
		return nil, err
	}
	members, err := s.store.ModuleMembers(ctx, ref)
	if err == nil && len(members) == 0 {
		err = fleet.Errorf(fleet.NotFound, "no provider offers module %s", ref).At("module").WithHint("holdfast get modules")
	}
	if err != nil {
		return nil, err
	}
	return &moduleOutput{Body: moduleView(fleet.Module{ModuleRef: ref, Members: members})}, nil
}

func moduleView(m fleet.Module) api.Module {
	newest := m.Members[0]
	view := api.Module{
		Name: m.String(), Namespace: string(m.Namespace), Group: string(newest.Group), Description: newest.Description,
		InputSchema: schemaView(newest.InputSchema), OutputSchema: schemaView(newest.OutputSchema),
	}
	for _, member := range m.Members {
		if member.Callable() {
			view.Callable++
		}
		view.Members = append(view.Members, api.ModuleMember{
			Connection: string(member.Connection), Provider: string(member.Provider), Node: string(member.Node), Executor: member.Executor,
			State: member.State, Draining: member.Drains, Since: member.Registered,
		})
	}
	return view
}

func schemaView(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

// The deadlines of executions that the caller waits for.
const (
	defaultDirect = 30 * time.Second
	maxDirect     = 60 * time.Second
)

func (s *server) execute(ctx context.Context, in *executeInput) (out *executeOutput, err error) {
	ref, err := fleet.ParseModule("module", in.Module)
	if err != nil {
		return nil, err
	}
	if s.executor == nil {
		return nil, fleet.Errorf(fleet.Unavailable, "this server runs no modules")
	}
	if in.DryRun || in.Durable {
		err = s.WithBody(ctx, fleet.MaxDirectInput, func(raw []byte) error {
			out, err = s.executeLater(ctx, in, ref, inputOf(raw))
			return err
		})
		return out, err
	}
	limit := cmp.Or(time.Duration(in.Timeout)*time.Second, defaultDirect)
	if limit > maxDirect {
		return nil, fleet.Errorf(fleet.Invalid, "timeout exceeds the limit of %s", maxDirect).At("timeout").WithHint("use ?durable=true")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.WithBody(ctx, fleet.MaxDirectInput, func(raw []byte) error {
		out, err = s.executeNow(ctx, in, ref, raw)
		return err
	})
	return out, err
}

// inputOf takes no body for no input.
func inputOf(raw []byte) []byte {
	if len(bytes.TrimSpace(raw)) == 0 {
		return []byte("{}")
	}
	return raw
}

// executeNow runs a module while the caller waits. Under a key a repeat is the same execution:
// answered from the first, or asked again under its id.
func (s *server) executeNow(ctx context.Context, in *executeInput, ref fleet.ModuleRef, raw []byte) (*executeOutput, error) {
	e := fleet.Execution{Module: ref, Input: inputOf(raw)}
	keyed := modules.DirectExecution{Module: ref, Input: e.Input, Actor: serve.CallOf(ctx).Actor}
	var err error
	if in.IdempotencyKey == "" {
		e.ID, err = postgres.NewID()
	} else {
		keyed.Idempotency = postgres.Idempotency{Key: in.IdempotencyKey, Hash: serve.RequestHash(serve.CallOf(ctx).Request, raw)}
		var output []byte
		if e.ID, output, err = s.store.ClaimExecution(ctx, keyed); err == nil && output != nil {
			return answeredWith(output), nil
		}
	}
	if err != nil {
		return nil, err
	}
	answer, err := s.executor.Execute(ctx, e)
	if err != nil {
		return nil, err
	}
	if in.IdempotencyKey != "" {
		if err := s.store.KeepExecution(context.WithoutCancel(ctx), keyed, e.ID, answer.Output); err != nil {
			s.Log.Warn("the result was not stored; a repeat of this execution runs it again", "execution", e.ID, "err", err)
		}
	}
	return answeredWith(answer.Output), nil
}

func answeredWith(output []byte) *executeOutput {
	return &executeOutput{Status: http.StatusOK, ContentType: "application/json", Body: output}
}

// executeLater opens the operation of a durable execution.
func (s *server) executeLater(ctx context.Context, in *executeInput, ref fleet.ModuleRef, input []byte) (*executeOutput, error) {
	var err error
	if in.Durable {
		err = fleet.ValidExecution(in.Module, input, in.Timeout)
	}
	if err == nil {
		err = s.executor.Check(ctx, ref, input)
	}
	if err != nil || !in.Durable {
		return accepted(api.Accepted{DryRun: true}, err)
	}
	ask, err := s.ask(ctx, in.AskParams, input, fleet.ExecutionLimit(in.Timeout))
	if err != nil {
		return nil, err
	}
	ask.Project = cmp.Or(ask.Project, fleet.DefaultProject)
	op, err := s.store.AskExecution(ctx, modules.ExecutionRequest{Request: ask, Module: ref, Input: input})
	if err != nil {
		return nil, err
	}
	view := s.operationView(op)
	if in.DryRun {
		view.ID = "" // it was rolled back and can never be read
	} else if !op.State.Ended() {
		s.wake(ctx, op.Subject)
	}
	return accepted(api.Accepted{Operation: &view, DryRun: in.DryRun}, nil)
}

func accepted(a api.Accepted, err error) (*executeOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &executeOutput{Status: http.StatusOK, ContentType: "application/json"}
	if a.Operation != nil && !a.DryRun {
		out.Status, out.Location = http.StatusAccepted, "/api/v1/operations/"+a.Operation.ID
	}
	out.Body, err = json.Marshal(a)
	return out, err
}

type outputInput struct {
	ID string `path:"id"`
}

func (s *server) executionOutput(ctx context.Context, in *outputInput) (*executeOutput, error) {
	op, err := s.operation(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if op.Kind != fleet.OperationExecute {
		return nil, fleet.Errorf(fleet.NotFound, "operation %s has no output: it executed no module", op.ID).At("id")
	}
	if !op.State.Ended() {
		return nil, fleet.Errorf(fleet.IllegalState, "operation %s has not ended", op.ID).WithHint("GET /api/v1/operations/" + in.ID + "?wait=60s")
	}
	kept, err := s.store.ExecutionOutput(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if op.State != fleet.OperationSucceeded {
		return nil, fleet.Errorf(fleet.ApplyFailed, "operation %s ended as %s (%s)", op.ID, op.State, op.Reason).WithHint(cmp.Or(kept.Failure, op.Message))
	}
	return answeredWith(kept.Output), nil
}

// waitsForModule says why an execution still runs (X8).
func waitsForModule(o postgres.Operation) (reason, message string) {
	if o.EntityRun == "" {
		return "queued", "waiting for its workflow to begin"
	}
	return "executing", "waiting for the answer of module " + o.Module
}
