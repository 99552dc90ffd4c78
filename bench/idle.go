package main

import (
	"context"
	"fmt"
	"time"
)

const (
	settle    = 15 * time.Second // after the start, until we call it idle
	idleWatch = 30 * time.Second

	readyLimit = 10.0 // seconds
	cpuLimit   = 4.0  // percent of one core
	pssLimit   = 700  // MB
	megabyte   = 1 << 20
)

// measureIdle looks at a region as people start it: default timing, the examples delivered.
func measureIdle(ctx context.Context, l *lab) ([]figure, error) {
	w := l.watch()
	r, err := l.start(ctx)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	ready := atMost("idle: ready with the examples delivered", r.readyIn.Seconds(), readyLimit)
	ready.measured, ready.unit = fmt.Sprintf("%.1f s", ready.value), "s"
	first, err := w.stamp([]figure{ready})
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	w = l.watch()
	used, took, err := l.cpuOver(ctx, idleWatch)
	if err != nil {
		return nil, err
	}
	cpu := atMost("idle: CPU of all processes, of one core", 100*used/took.Seconds(), cpuLimit)
	cpu.measured, cpu.unit = fmt.Sprintf("%.1f %%", cpu.value), "%"
	bytes, count, err := l.pss()
	if err != nil {
		return nil, err
	}
	pss := atMost("idle: memory of all processes (PSS)", float64(bytes)/megabyte, pssLimit)
	pss.measured, pss.unit = fmt.Sprintf("%.0f MB", pss.value), "MB"
	pss.note = fmt.Sprintf("%d processes", count)
	second, err := w.stamp([]figure{cpu, pss})
	return append(first, second...), err
}

// cpuOver is the CPU time that the region's processes use in a while, in seconds.
func (l *lab) cpuOver(ctx context.Context, d time.Duration) (float64, time.Duration, error) {
	before, err := l.cpu()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := pause(ctx, d); err != nil {
		return 0, 0, err
	}
	after, err := l.cpu()
	return after - before, time.Since(began), err
}
