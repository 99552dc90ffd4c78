package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// guardedPort is the first, below those that nodes choose.
const guardedPort = 18_000

// guarded is the yardstick of changes: the program starts as often under guardians, as nodes start it, and is probed as by
// them until it is healthy. No region has any part in it. The ends are not timed.
func (d *deployments) guarded(ctx context.Context, l *lab) (rate float64, err error) {
	data, err := os.MkdirTemp(d.dir, "guarded-")
	if err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	apart := isolation.New(isolation.Options{Dir: data})
	apart.Site = func() fleet.ProjectName { return fleet.DefaultProject }
	if err := apart.Begin(); err != nil {
		return 0, err
	}
	driver := replicas.NewProcess(&guardian.Runtime{
		Root: filepath.Join(data, "run"), Executable: l.program, LifetimePID: os.Getpid(), Unleased: true,
	}, nil, apart)
	took, err := atOnce(ctx, changingAtOnce, changing, func(ctx context.Context, i int) error {
		port := strconv.Itoa(guardedPort + i)
		dir := filepath.Join(data, string(guardedID(i)))
		in := replicas.Launch{ // its ledger is its own: in the region's, another user may have left the file of the same pid
			ID: guardedID(i), Project: fleet.DefaultProject, Env: d.env(port, dir), Dir: dir,
			Process: fleet.Process{Command: []string{d.program}, Health: &fleet.HealthCheck{Type: fleet.HealthHTTP}, StopSeconds: 1},
		}
		if err := os.Mkdir(in.Dir, 0o700); err != nil {
			return err
		}
		if _, err := driver.Start(ctx, in); err != nil {
			return err
		}
		return healthy(ctx, port, decide.StartupProbeEvery)
	})
	_, stopped := together(ctx, changing, func(ctx context.Context, i int) error { return driver.Remove(ctx, guardedID(i)) })
	return changing / took.Seconds(), errors.Join(err, stopped)
}

func guardedID(i int) fleet.ReplicaID { return fleet.ReplicaID(fmt.Sprintf("%012x", i)) }
