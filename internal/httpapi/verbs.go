package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

// verb is what an operator requests of an object: POST PATH/NAME, or DELETE PATH for the verb delete.
type verb struct {
	kind    fleet.ObjectKind
	name    string
	summary string
	mount   mounter
}

type mounter func(*server, verb)

// verbs has a row for each request that opens one operation on one object. Not among them are requests with another
// answer (reconcile of a site: several operations; cordon, uncordon, revoke and rotate-key: the node; drain of a provider:
// its connection; execute: the output), cancel, which opens nothing, and the approval of orphans, which administrators send.
func verbs() []verb {
	rows := []verb{
		{fleet.KindSite, "failover", "Make another node the active one of a site", asks((*server).failoverSite)},
		{kindNode, "reconcile", "Compare a node with its site's expected set", asks((*server).reconcileNode)},
		{kindNode, "drain", "Empty a node: cordon it, move what runs, let it finish, cut it off at the deadline", takes[askInput]((*server).drainNode)},

		{fleet.KindRegion, "sync", "Compare what this region has of a peer's objects with the peer, and repair it", asks((*server).syncRegion)},

		{fleet.KindInstance, "deploy", "Bring the desired revision to the site's nodes", turnsInstance(fleet.OperationDeploy)},
		{fleet.KindInstance, "enable", "Have the instance run", turnsInstance(fleet.OperationEnable)},
		{fleet.KindInstance, "disable", "Stop the instance; its nodes keep the config", turnsInstance(fleet.OperationDisable)},
		{fleet.KindInstance, "rollback", "Release an earlier revision's content under a new number", turns[changeInstanceInput]((*server).rollbackInstance)},
		{fleet.KindInstance, "delete", "Delete an instance from all its nodes", turnsInstance(fleet.OperationDelete)},

		{fleet.KindDeployment, "deploy", "Run what is declared, as it was written last", turnsDeployment(fleet.OperationConverge)},
		{fleet.KindDeployment, "restart", "Replace every replica by a new one, one by one or all at once", turns[changeObjectInput]((*server).restartDeployment)},
		{fleet.KindDeployment, "scale", "Set how many replicas there are to be", turns[changeObjectInput]((*server).scaleDeployment)},
		{fleet.KindDeployment, "pause", "Pause a rollout", turnsRollout(fleet.RolloutPause)},
		{fleet.KindDeployment, "resume", "Resume a paused rollout", turnsRollout(fleet.RolloutResume)},
		{fleet.KindDeployment, "promote", "Skip the steps of a rollout that are left", turnsRollout(fleet.RolloutPromote)},
		{fleet.KindDeployment, "retry", "Roll the newest released revision out again", turns[changeObjectInput]((*server).retryDeployment)},
		{fleet.KindDeployment, "rollback", "Release the whole spec of an earlier revision once more", turns[changeObjectInput]((*server).rollbackDeployment)},
		{fleet.KindDeployment, "cancel", "Return from a rollout to the stable revision", turnsRollout(fleet.RolloutCancel)},
		{fleet.KindDeployment, "delete", "End all replicas of a deployment, and then delete it", turnsDeployment(fleet.OperationDestroy)},
	}
	for _, k := range fleet.DeclaredKinds() {
		if k.Holder {
			rows = append(rows,
				verb{k.Kind, "apply-policy", "Apply the policy of this " + string(k.Kind) + " to all that it governs", asksBy[askNamedInput](serve.ForOperators, (*server).applyPolicy)},
				verb{k.Kind, "hand-over", "Have another region control this " + string(k.Kind), asksBy[askNamedInput](serve.ForAdmins, (*server).handOver)})
		}
	}
	for _, t := range api.FleetTurns() {
		rows = append(rows, verb{fleet.KindFleet, t.Verb, t.Summary, turns[changeObjectInput](
			func(s *server, ctx context.Context, w postgres.Write, in api.ActionRequest) (postgres.Started, error) {
				return s.turnFleet(ctx, fleets.FleetTurn{Write: w, On: t.On, Reason: in.Reason})
			})})
	}
	return rows
}

// verbStore opens the operations of verbs that change no object.
type verbStore interface {
	AskSync(ctx context.Context, in copies.SyncRequest) (postgres.Operation, error)
	AskPolicy(ctx context.Context, in policies.PolicyRequest) (postgres.Operation, error)
	// AskHandOver is invalid for a region that the policy does not enable.
	AskHandOver(ctx context.Context, in policies.HandOverRequest) (postgres.Operation, error)
	AskFailover(ctx context.Context, in nodes.FailoverRequest) (postgres.Operation, error)
	AskReconcile(ctx context.Context, in nodes.ReconcileRequest) (postgres.Operation, error)
	AskNodeDrain(ctx context.Context, in nodes.DrainRequest) (postgres.Operation, error)
}

// kindNode names nodes in paths; a node is declared by its site.
const kindNode fleet.ObjectKind = "node"

// verbInput names the object of a verb in the path, and has what comes with the request.
type verbInput interface {
	keyOf(kind fleet.ObjectKind) (fleet.ObjectKey, error)
	mutation() ObjectParams
}

// askInput comes with a verb that changes no object.
type askInput struct {
	NameParam
	AskParams
}

// askNamedInput is for an object of a shared kind.
type askNamedInput struct {
	NameParam
	AskParams
	RegionParam
}

func (p askNamedInput) mutation() ObjectParams {
	m := p.AskParams.mutation()
	m.RegionParam = p.RegionParam
	return m
}

// emptyBody is for a verb without a body. Any other body is optional, unless an empty one is invalid.
type emptyBody struct{}

// takes mounts a verb with a body B: its handler decodes the request, and open checks it, writes and answers.
func takes[I verbInput, B any](open func(*server, context.Context, postgres.Write, B) (*acceptedOutput, error)) mounter {
	return takesBy[I](serve.ForOperators, open)
}

func takesBy[I verbInput, B any](who serve.Access, open func(*server, context.Context, postgres.Write, B) (*acceptedOutput, error)) mounter {
	return func(s *server, v verb) {
		op := v.endpoint()
		serve.Register(s.Server, who, op, func(ctx context.Context, in *I) (*acceptedOutput, error) {
			key, err := (*in).keyOf(v.kind)
			if err != nil {
				return nil, err
			}
			var body B
			raw, err := s.readVerb(ctx, &body)
			if err != nil {
				return nil, err
			}
			w, err := s.write(ctx, key, (*in).mutation(), raw)
			if err != nil {
				return nil, err
			}
			return open(s, ctx, w, body)
		})
		if _, none := any(*new(B)).(emptyBody); !none && op.Method == http.MethodPost {
			serve.Takes[B](s.Server, op)
		}
	}
}

func (s *server) readVerb(ctx context.Context, body any) ([]byte, error) {
	switch body.(type) {
	case *emptyBody:
		return nil, nil
	case *api.ScaleRequest, *api.HandOverRequest: // there is no scale without a number, and no hand-over without a region
		return s.ReadJSON(ctx, body)
	}
	return s.ReadOptional(ctx, body)
}

// asks mounts a verb that changes no object.
func asks[B any](open func(*server, context.Context, postgres.Write, B) (postgres.Operation, error)) mounter {
	return asksBy[askInput](serve.ForOperators, open)
}

func asksBy[I verbInput, B any](who serve.Access, open func(*server, context.Context, postgres.Write, B) (postgres.Operation, error)) mounter {
	return takesBy[I](who, func(s *server, ctx context.Context, w postgres.Write, in B) (*acceptedOutput, error) {
		op, err := open(s, ctx, w, in)
		if err != nil {
			return nil, err
		}
		return s.askedOutput(ctx, op, w.DryRun), nil
	})
}

// turns mounts a verb that changes its object, or may.
func turns[I verbInput, B any](open func(*server, context.Context, postgres.Write, B) (postgres.Started, error)) mounter {
	return takes[I](func(s *server, ctx context.Context, w postgres.Write, in B) (*acceptedOutput, error) {
		started, err := open(s, ctx, w, in)
		if err != nil {
			return nil, err
		}
		return s.startedOutput(ctx, started, MutationParams{DryRun: w.DryRun}), nil
	})
}

func (v verb) endpoint() huma.Operation {
	row := v.kind.Declared()
	path := "/api/v1/" + row.Plural + "/{name}"
	if row.OfSite {
		path = "/api/v1/sites/{site}/" + row.Plural + "/{name}"
	}
	method := http.MethodDelete
	if v.name != "delete" {
		method, path = http.MethodPost, path+"/"+v.name
	}
	op := serve.Endpoint(method, path, v.name+"-"+string(v.kind), v.summary)
	op.DefaultStatus = http.StatusAccepted
	return op
}
