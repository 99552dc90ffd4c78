package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

const (
	planned       = 10_000
	plannedSites  = 10
	plannedConfig = 4 << 10
	planRounds    = 5
	planLimit     = 2.0 // seconds
	// planMemory is how many times the request a server may take for declaring and planning it.
	planMemory = 8.0
)

// measurePlan plans what stands already: the whole call, from the client's request to its
// answer. The instances are declared and not delivered, for nothing is to run meanwhile.
func measurePlan(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	peaks, err := r.rest([]string{"server"})
	if err != nil {
		return nil, err
	}
	request, err := manyInstances()
	if err != nil {
		return nil, err
	}
	l.say("declaring %d instances …", planned)
	began := time.Now()
	applied, err := r.api.Apply(ctx, request, api.ReleaseNone, api.Mutation{})
	if err != nil {
		return nil, err
	}
	if applied.Failed > 0 {
		return nil, fmt.Errorf("%d objects were not applied", applied.Failed)
	}
	declared := time.Since(began)
	w := l.watch()
	var times []time.Duration
	above, err := peaked(peaks, func() error {
		times, err = r.planAgain(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	size := requestSize(request)
	f := atMost("plan: 10,000 unchanged objects", quantile(times, 0.5).Seconds(), planLimit)
	f.measured, f.unit = fmt.Sprintf("%.2f s", f.value), "s"
	f.note = fmt.Sprintf("slowest of %d: %.2f s; declared in %.1f s", planRounds, quantile(times, 0.99).Seconds(), declared.Seconds())
	m := atMost("plan: memory of the server, 10,000 objects, above idle", float64(above[0])/float64(size), planMemory)
	m.measured, m.yardstick = fmt.Sprintf("%.0f MB", float64(above[0])/megabyte), fmt.Sprintf("%.0f MB", float64(size)/megabyte)
	return w.stamp([]figure{f, m})
}

// planAgain takes the times of some plans of what stands.
func (r *region) planAgain(ctx context.Context, request api.PlanRequest) ([]time.Duration, error) {
	var times []time.Duration
	for range planRounds {
		began := time.Now()
		p, err := r.api.Plan(ctx, request, api.ReleaseNone)
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		if p.Changes || p.Summary.Unchanged != planned+plannedSites {
			return nil, fmt.Errorf("the plan says %+v", p.Summary)
		}
	}
	return times, nil
}

// manyInstances is instances of 4 KB over some sites, whose nodes nobody starts.
func manyInstances() (api.PlanRequest, error) {
	request := api.PlanRequest{ApplySet: "bench"}
	for i := range plannedSites {
		name := fmt.Sprintf("planned-%d", i)
		nodes := fmt.Sprintf(`{"nodes":[{"name":"%s-a","role":"active"},{"name":"%s-b","role":"standby"}]}`, name, name)
		request.Objects = append(request.Objects, api.Manifest{Kind: "Site", Name: name, Spec: json.RawMessage(nodes)})
	}
	const fields = 50
	for i := range planned {
		config := map[string]string{}
		for k := range fields {
			config[fmt.Sprintf("setting-%02d", k)] = strings.Repeat(string(rune('a'+k%26)), plannedConfig/fields-24) + fmt.Sprintf("-%05d", i)
		}
		spec, err := json.Marshal(map[string]any{"config": config})
		if err != nil {
			return request, fmt.Errorf("make a config: %w", err)
		}
		request.Objects = append(request.Objects, api.Manifest{
			Kind: "Instance", Name: fmt.Sprintf("i-%d", i), Site: fmt.Sprintf("planned-%d", i%plannedSites), Spec: spec,
		})
	}
	return request, nil
}

func requestSize(request api.PlanRequest) int {
	size := 0
	for _, o := range request.Objects {
		size += len(o.Spec)
	}
	return size
}
