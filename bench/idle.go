package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	settle    = 15 * time.Second // after the start, until we call it idle
	idleWatch = 30 * time.Second

	readyLimit = 10.0 // seconds
	cpuLimit   = 4.0  // percent of one core
	pssLimit   = 700  // MB
	megabyte   = 1 << 20
)

// measureIdle looks at regions as people start them: default timing, the examples delivered.
// The last one is then left alone.
func measureIdle(ctx context.Context, l *lab) ([]figure, error) {
	var r *region
	ready, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		if r != nil {
			r.stop()
		}
		var err error
		if r, err = l.start(ctx); err != nil {
			return 0, err
		}
		return r.readyIn.Seconds(), nil
	}, loopSeconds)
	if r != nil {
		defer r.stop()
	}
	if err != nil {
		return nil, err
	}
	if err := pause.For(ctx, settle); err != nil {
		return nil, err
	}
	var memory series
	count := 0
	cpu, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		used, took, err := l.cpuOver(ctx, idleWatch)
		if err != nil {
			return 0, err
		}
		bytes, n, err := l.pss()
		memory.ours, count = append(memory.ours, float64(bytes)/megabyte), n
		return 100 * used / took.Seconds(), err
	}, loopPercent)
	return []figure{
		{name: "idle: ready with the examples delivered", unit: "s", series: ready, by: byValue, limit: readyLimit},
		{name: "idle: CPU of all processes, of one core", unit: "%", series: cpu, by: byValue, limit: cpuLimit},
		{
			name: "idle: memory of all processes (PSS)", unit: "MB", series: memory, by: byValue, limit: pssLimit,
			note: fmt.Sprintf("%d processes", count),
		},
	}, err
}

// cpuOver is the CPU time that the region's processes use in a while, in seconds.
func (l *lab) cpuOver(ctx context.Context, d time.Duration) (float64, time.Duration, error) {
	before, err := l.cpu()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := pause.For(ctx, d); err != nil {
		return 0, 0, err
	}
	after, err := l.cpu()
	return after - before, time.Since(began), err
}
