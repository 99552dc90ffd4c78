package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
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
func (s *server) fleetFrom(ctx context.Context, in *putFleetInput, raw []byte) (fleets.FleetPut, error) {
	p := fleets.FleetPut{Start: in.Deploy}
	put := api.FleetPut{Project: in.Project}
	patch, err := readFleet(raw, &put)
	if err != nil {
		return p, err
	}
	if p.Spec, err = declare.Fleet(put, patch); err != nil {
		return p, err
	}
	key := fleet.ObjectKey{Kind: fleet.KindFleet, Name: in.Name}
	if p.Write, err = s.write(ctx, key, in.ObjectParams, raw); err != nil {
		return p, err
	}
	if p.Project, err = s.projectOf(ctx, put.Project, p.Region); err != nil {
		return p, err
	}
	p.Labels, p.Service, p.Reason = put.Labels, put.Service, put.Reason
	if err := s.pinFleet(ctx, key, &p.Spec.Change); err != nil {
		return p, err
	}
	return p, s.fillPatch(ctx, &p, patch)
}

// readFleet splits a request; the patch may be large, and is given as it was sent.
func readFleet(raw []byte, put *api.FleetPut) (patch []byte, err error) {
	var change []byte
	if err := serve.Envelope(raw, map[string]*[]byte{"change": &change}, put); err != nil {
		return nil, err
	}
	if change == nil {
		return nil, nil // refused with the spec
	}
	return patch, decode.Below("/change", serve.Envelope(change, map[string]*[]byte{"patch": &patch}, &put.Change))
}

func (s *server) fillPatch(ctx context.Context, p *fleets.FleetPut, patch []byte) error {
	if patch == nil {
		return nil
	}
	content, err := s.canonical(ctx, p.Project, compose.Layer{Name: "/change/patch", JSON: patch})
	p.Spec.Change.Patch = &content
	return err
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
