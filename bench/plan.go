package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	planned       = 10_000
	plannedSites  = 10
	plannedConfig = 4 << 10
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
	if err := pause.For(ctx, settle); err != nil {
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
	size := requestSize(request)
	var memory series
	s, err := l.inTurn(ctx, func(ctx context.Context, _ int) (seconds float64, err error) {
		above, err := peaked(peaks, func() error {
			seconds, err = r.planAgain(ctx, request)
			return err
		})
		if err == nil {
			memory.ours, memory.plain = append(memory.ours, float64(above[0])/megabyte), append(memory.plain, float64(size)/megabyte)
		}
		return seconds, err
	}, func(context.Context, int) (float64, error) { return readAndWritten(request) })
	return []figure{
		{
			name: "plan: 10,000 unchanged objects", unit: "s", series: s, by: byValue, limit: planLimit,
			note: fmt.Sprintf("declared in %.1f s", declared.Seconds()),
		},
		{name: "plan: memory of the server, 10,000 objects, above idle", unit: "MB", series: memory, limit: planMemory},
	}, err
}

// planAgain is how long a plan of what stands takes.
func (r *region) planAgain(ctx context.Context, request api.PlanRequest) (float64, error) {
	began := time.Now()
	p, err := r.api.Plan(ctx, request, api.ReleaseNone)
	if err == nil && (p.Changes || p.Summary.Unchanged != planned+plannedSites) {
		err = fmt.Errorf("the plan says %+v", p.Summary)
	}
	return time.Since(began).Seconds(), err
}

// readAndWritten is the yardstick: the request as JSON, written and read once, by one core.
func readAndWritten(request api.PlanRequest) (float64, error) {
	began := time.Now()
	text, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(text, &api.PlanRequest{})
	}
	if err != nil {
		return 0, fmt.Errorf("write and read the request: %w", err)
	}
	return time.Since(began).Seconds(), nil
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
