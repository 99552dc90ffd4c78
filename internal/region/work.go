package region

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/workers"
)

// work runs the worker of this server, once Temporal answers.
func (s *server) work(ctx context.Context) error {
	err := insist(ctx, s.log, "temporal", func(ctx context.Context) error {
		return s.cfg.unreached(prepare(ctx, s.temporal, s.cfg.TemporalNamespace, s.cfg.Region, s.cfg.Timing))
	})
	if err != nil {
		return err
	}
	w, err := startWorker(ctx, s.log, "the worker", func() worker.Worker {
		return workers.NewServer(s.temporal, s.cfg.Build, "server."+s.id[:8], s.activities())
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := s.arrive(ctx); err != nil {
		return err
	}
	s.serving.Store(true)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.shards(ctx, s.nodeShards()) })
	group.Go(func() error { return s.shards(ctx, s.runtimeShards()) })
	return group.Wait()
}

// arrive makes this build current at once: an upgrade waits for nothing. The exception is a build that was current
// before and was replaced by an older, still running one: its own servers had crashed, so it leaves new workflows
// to the other.
func (s *server) arrive(ctx context.Context) error {
	first := false
	err := insist(ctx, s.log, "postgres", func(ctx context.Context) (err error) {
		first, err = s.presence.alone(ctx) // before this one is seen: of several, one finds itself alone
		return err
	})
	if err != nil {
		return err
	}
	return insist(ctx, s.log, "the worker's version", func(ctx context.Context) error {
		if err := s.presence.seen(ctx); err != nil {
			return err
		}
		if !first {
			if replaced, err := s.replaced(ctx); err != nil || replaced {
				return err
			}
		}
		return becomeCurrent(ctx, s.temporal, s.cfg.Build)
	})
}

// replaced reports whether another build with a server is current.
func (s *server) replaced(ctx context.Context) (bool, error) {
	current, err := currentBuild(ctx, s.temporal)
	if err != nil || current == s.cfg.Build {
		return false, err
	}
	live, err := s.presence.live(ctx)
	if err != nil || !slices.Contains(live, current) {
		return false, err
	}
	s.log.WarnContext(ctx, "servers of this build have crashed: another build takes new workflows", "build", s.cfg.Build, "other", current)
	return true, nil
}

// beat records that this build has a worker. If the current build has lost all its workers, or its servers keep
// crashing, this build becomes current.
func (s *server) beat(ctx context.Context) error {
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := s.presence.gone(gone); err != nil {
			s.log.Warn("cannot remove this server's record; it lapses later", "error", err)
		}
	}()
	return s.every(ctx, s.cfg.Timing.ServerSeen, "report that this server is alive", func(ctx context.Context) error {
		if !s.serving.Load() {
			return nil
		}
		if err := s.presence.seen(ctx); err != nil {
			return err
		}
		live, err := s.presence.live(ctx)
		if err != nil {
			return err
		}
		current, err := currentBuild(ctx, s.temporal)
		if err != nil || slices.Contains(live, current) && (current == s.cfg.Build || !s.presence.falls(current)) {
			return err
		}
		return becomeCurrent(ctx, s.temporal, s.cfg.Build)
	})
}

// becomeCurrent routes new workflows to this build. A door that a plain client starts has no version of its own,
// and goes to the current build.
func becomeCurrent(ctx context.Context, c client.Client, build string) error {
	handle := c.WorkerDeploymentClient().GetHandle(workers.Deployment)
	_, err := handle.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{
		BuildID: build, IgnoreMissingTaskQueues: true,
	})
	if err != nil {
		return fmt.Errorf("make build %s current: %w", build, err)
	}
	return nil
}

// currentBuild is where new workflows go, "" if there is none.
func currentBuild(ctx context.Context, c client.Client) (string, error) {
	d, err := c.WorkerDeploymentClient().GetHandle(workers.Deployment).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if err != nil {
		return "", fmt.Errorf("read the current build: %w", err)
	}
	if v := d.Info.RoutingConfig.CurrentVersion; v != nil {
		return v.BuildID, nil
	}
	return "", nil
}
