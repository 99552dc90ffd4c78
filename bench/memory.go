package main

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	artifactMemory = 100 // MB above idle
	jsonSize       = 40 << 20
	jsonText       = 200
	jsonMemory     = 8.0 // times the config
)

// measureMemory looks at the peaks of a fresh region: how far they are above idle.
func measureMemory(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if err := pause.For(ctx, settle); err != nil {
		return nil, err
	}
	names := []string{"server", "plant-1-a", "plant-1-b"}
	peaks, err := r.rest(names)
	if err != nil {
		return nil, err
	}
	above := make([]series, len(names))
	for range rounds {
		highest, err := peaked(peaks, func() error {
			_, err := l.deliverArtifact(ctx, r, instanceKey(0))
			return err
		})
		if err != nil {
			return nil, err
		}
		for i := range names {
			above[i].ours, above[i].plain = append(above[i].ours, float64(highest[i])/megabyte), append(above[i].plain, artifactSize/megabyte)
		}
	}
	var figures []figure
	for i, name := range names {
		figures = append(figures, figure{
			name: "memory: " + name + ", 300 MB artifact, above idle", unit: "MB", series: above[i], by: byValue, limit: artifactMemory,
			note: fmt.Sprintf("idle %.0f MB", float64(peaks[i].idle)/megabyte),
		})
	}
	var s series
	for range rounds {
		body := newConfig(jsonSize, jsonText)
		highest, err := peaked(peaks[:1], func() error {
			key := instanceKey(2)
			if _, err := r.deliver(ctx, key, api.InstancePut{Config: body}); err != nil {
				return err
			}
			return r.holds(ctx, key, hashOf(body))
		})
		if err != nil {
			return nil, err
		}
		s.ours, s.plain = append(s.ours, float64(highest[0])/megabyte), append(s.plain, jsonSize/megabyte)
	}
	return append(figures, figure{name: "memory: server, 40 MB JSON, above idle", unit: "MB", series: s, limit: jsonMemory}), nil
}

// rest takes the present memory of processes as that of idle ones.
func (r *region) rest(names []string) ([]peak, error) {
	peaks := make([]peak, len(names))
	for i, name := range names {
		pid, err := r.pid(name)
		if err != nil {
			return nil, err
		}
		if peaks[i], err = rest(pid); err != nil {
			return nil, fmt.Errorf("read the memory of %s: %w", name, err)
		}
	}
	return peaks, nil
}

// peaked is how far above idle each process went while something was done.
func peaked(peaks []peak, do func() error) ([]int64, error) {
	for _, p := range peaks {
		if err := p.reset(); err != nil {
			return nil, fmt.Errorf("reset the peak of process %d: %w", p.pid, err)
		}
	}
	if err := do(); err != nil {
		return nil, err
	}
	above := make([]int64, len(peaks))
	for i, p := range peaks {
		var err error
		if above[i], err = p.above(); err != nil {
			return nil, fmt.Errorf("read the peak of process %d: %w", p.pid, err)
		}
	}
	return above, nil
}
