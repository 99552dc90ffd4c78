package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	isolationTimes  = 40  // a round
	isolationRest   = 10  // replicas at rest
	isolationLimit  = 1.1 // times a start without it
	isolationBeside = 0.0 // processes at rest
)

// measureIsolation times the start of a replica under a uid of its own, against the same without, and
// counts the processes that are there at rest.
func measureIsolation(ctx context.Context, l *lab) (figures []figure, err error) {
	apart, end, err := l.startDeployments(ctx, "--isolation=uid")
	if err != nil {
		return nil, err
	}
	defer end()
	counts := make([]int, 2) //nolint:mnd // one region, and both
	if counts[0], err = apart.rest(ctx, l); err != nil {
		return nil, err
	}
	together, end, err := l.startDeployments(ctx, "--isolation=none")
	if err != nil {
		return nil, err
	}
	defer end()
	if counts[1], err = together.rest(ctx, l); err != nil {
		return nil, err
	}
	starts, err := l.inTurn(ctx, apart.typical, together.typical)
	if err != nil {
		return nil, err
	}
	return []figure{
		{name: "isolation: PUT until healthy under a uid, p50", unit: "ms", series: starts, limit: isolationLimit},
		{
			name: fmt.Sprintf("isolation: processes of a region with %d replicas at rest", isolationRest), by: byDifference, limit: isolationBeside,
			series: series{ours: []float64{float64(counts[0])}, plain: []float64{float64(counts[1] - counts[0])}},
		},
	}, nil
}

// rest declares replicas, and counts the processes of all regions when they are healthy.
func (d *deployments) rest(ctx context.Context, l *lab) (int, error) {
	if err := d.put(ctx, "rest", isolationRest); err != nil {
		return 0, err
	}
	if _, err := d.look(ctx, `SELECT name, 0 FROM deployments WHERE name = 'rest' AND state = 'RUNNING'`); err != nil {
		return 0, err
	}
	if err := pause.For(ctx, settle); err != nil {
		return 0, err
	}
	_, count, err := l.pss()
	return count, err
}

// typical is the median of a round's starts.
func (d *deployments) typical(ctx context.Context, round int) (float64, error) {
	times := make([]time.Duration, isolationTimes)
	for i := range times {
		var err error
		if times[i], err = d.begin(ctx, fmt.Sprintf("quick-%d-%d", round, i), 1); err != nil {
			return 0, err
		}
	}
	return inMillis(quantile(times, 0.5)), nil //nolint:mnd // the median
}
