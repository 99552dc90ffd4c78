package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

type putFleetInput struct {
	NameParam
	ObjectParams
	Deploy  bool   `query:"deploy" default:"true" doc:"false declares the change and runs nothing"`
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

const fleetPath = "/api/v1/fleets/{name}"

func (s *server) mountFleets(fleet.DeclaredKind) {
	put := serve.Endpoint(http.MethodPut, fleetPath, "put-fleet", "Declare a fleet change and run it")
	put.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, put, s.putFleet)
	serve.Takes[api.FleetPut](s.Server, put)
	s.mountFleetReads()
}

func (s *server) putFleet(ctx context.Context, in *putFleetInput) (out *acceptedOutput, err error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	err = s.WithBody(ctx, s.Largest, func(raw []byte) error {
		p, err := s.fleetFrom(ctx, in, raw)
		if err != nil {
			return err
		}
		started, err := s.store.PutFleet(ctx, p)
		if err != nil {
			return err
		}
		out = s.startedOutput(ctx, started, in.MutationParams)
		return nil
	})
	return out, err
}

// fleetFrom makes the store's change of a request: everything is checked before its patch is
// stored, and that before the transaction begins.
func (s *server) fleetFrom(ctx context.Context, in *putFleetInput, raw []byte) (p fleets.FleetPut, err error) {
	f, err := declaration.ReadFleet(raw, api.FleetPut{Project: in.Project})
	if err != nil {
		return p, err
	}
	key := fleet.ObjectKey{Kind: fleet.KindFleet, Name: in.Name}
	w, of, err := s.declare(ctx, key, in.ObjectParams, raw, beside{f.Put.Project, f.Put.Service, f.Put.Labels})
	if err != nil {
		return p, err
	}
	if err := s.maker.Pin(ctx, of, &f); err != nil {
		return p, err
	}
	if err := s.maker.KeepPatch(ctx, w.Project, &f); err != nil {
		return p, err
	}
	return fleets.FleetPut{Write: w, Spec: f.Spec, Start: in.Deploy, Reason: f.Put.Reason}, nil
}

func (s *server) turnFleet(ctx context.Context, t fleets.FleetTurn) (postgres.Started, error) {
	if err := declare.CheckTexts(nil, t.Reason); err != nil {
		return postgres.Started{}, err
	}
	if _, err := s.visible(ctx, t.Key); err != nil {
		return postgres.Started{}, err
	}
	started, err := s.store.TurnFleet(ctx, t)
	if err == nil && started.Operation == nil && !t.DryRun {
		s.wake(ctx, fleet.FleetSubject(fleet.FleetName(t.Key.Name))) // a pause is to be heeded at once
	}
	return started, err
}
