package region

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/link/tasks"
	"github.com/holdfast-io/holdfast/internal/schema"
	"github.com/holdfast-io/holdfast/workflows"
)

// openLink makes this server's part of the link, with all its services.
func (s *server) openLink(ctx context.Context) error {
	if s.cfg.Link == "" || !s.cfg.Roles.Has(RoleLink) {
		if len(s.cfg.Roles) > 0 && s.cfg.Roles.Has(RoleLink) {
			return fleet.Errorf(fleet.Invalid, "role link needs an address").At("link").WithHint("give --link HOST:PORT")
		}
		return nil
	}
	narrow, err := s.narrowTemporal(ctx)
	if err != nil {
		return err
	}
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(narrow.Unknown)}
	if s.tls != nil {
		options = append(options, grpc.Creds(certs.Listener(s.tls, link.DoorLink, time.Now, s.log, s.refusals.Refuse)))
	}
	s.link, err = link.New(link.Options{
		Store: s.store, ID: s.id, Timing: s.cfg.Timing.Link, Now: time.Now, Log: s.log, Metrics: s.registry,
		GRPC: options, Replicas: countedReplicas{s.store, s.metrics.said, s.metrics.sync}, Refuse: s.refusals.Refuse, Wake: s.wakeAll,
		CheckSchema: schema.Check, Executors: s.cfg.ExecutorNetworks, TaskLife: max(s.cfg.Timing.Delivery.Request, time.Minute),
	})
	if err != nil {
		return err
	}
	narrow.Register(s.link.Registrar())
	s.narrow = narrow
	return nil
}

// wakesAtOnce limits the concurrent wake calls of a server to Temporal.
const wakesAtOnce = 8

// wakeAll wakes what it can; the relay and the sweeps find the rest.
func (s *server) wakeAll(ctx context.Context, subjects []string) error {
	var group errgroup.Group
	group.SetLimit(wakesAtOnce)
	for _, subject := range subjects {
		group.Go(func() error { return s.again.Wake(ctx, subject) })
	}
	return group.Wait()
}

// cutRevoked ends the polls of nodes that were revoked while they waited, and polls signed with a replaced key. New
// calls with the old key are refused, and streams end with their connections.
func (s *server) cutRevoked(ctx context.Context) error {
	return s.every(ctx, s.cfg.Timing.Link.HeartbeatEvery, "cut revoked nodes", func(ctx context.Context) error {
		polling := s.narrow.Polling()
		if len(polling) == 0 {
			return nil
		}
		keys, err := s.store.KeysOfNodes(ctx, polling)
		if err != nil {
			return err
		}
		for _, node := range polling {
			var valid []string
			for _, key := range keys[node] {
				valid = append(valid, identity.EncodePublic(key))
			}
			s.narrow.Cut(node, valid...)
		}
		return nil
	})
}

// taskTokenSecret is the name of the secret that binds task tokens to nodes.
const taskTokenSecret = "task_tokens"

// narrowTemporal makes the part of Temporal that nodes may use.
func (s *server) narrowTemporal(ctx context.Context) (*tasks.Server, error) {
	secret, err := s.store.Secret(ctx, taskTokenSecret, tasks.SecretBytes)
	if err != nil {
		return nil, err
	}
	narrow, err := tasks.New(tasks.Options{
		Upstream: s.temporal.WorkflowService(), Namespace: s.cfg.TemporalNamespace, Queue: workflows.NodeQueue,
		Secret: secret, Log: s.log,
		Identity: func(ctx context.Context) (name, key string, err error) {
			who := link.IdentityOf(ctx)
			return who.Name, who.Key, nil
		},
		Refuse: func(identity, reason, what string) {
			s.refusals.Refuse(audit.Refusal{Door: tasks.Door, Identity: identity, Reason: reason, What: what})
		},
	})
	if err != nil {
		return nil, err
	}
	if err := s.registry.Register(narrow); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
	}
	return narrow, nil
}
