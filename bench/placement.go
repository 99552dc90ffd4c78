package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	placedNodes    = 5_000
	placedSites    = 500
	placedReplicas = 150_000
	placedAtOnce   = 10 // replicas of one deployment
	placedLevels   = 10
	placedSingly   = 1_000 // placements that are timed at each level of filling
	placedRate     = 1_500.0
	placedFlat     = 0.7
)

// measurePlacement fills a fleet, and times at each tenth how fast single replicas find their
// places: in time of the processor, for one core is what the limit speaks of. Deployments differ in
// which nodes they want.
func measurePlacement(ctx context.Context, l *lab) ([]figure, error) {
	var flat series
	slowest, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		rates, err := filled(ctx)
		if err != nil {
			return 0, err
		}
		flat.ours, flat.plain = append(flat.ours, rates[placedLevels-1]), append(flat.plain, rates[0])
		return slices.Min(rates), nil
	}, loopRate)
	return []figure{
		{
			name: "placement: 5,000 nodes, 150,000 replicas, one by one, slowest tenth", unit: "/s", series: slowest,
			by: byValue, limit: placedRate, least: true,
		},
		{name: "placement: last tenth of the fleet against the first", unit: "/s", series: flat, limit: placedFlat, least: true},
	}, err
}

// filled fills a fleet, and gives the rate of single replicas at each tenth.
func filled(ctx context.Context) ([]float64, error) {
	p := decide.NewPlacer(placementRooms())
	var rates []float64
	deployments := 0
	for level := range placedLevels {
		for range placedReplicas/placedLevels/placedAtOnce - placedSingly/placedAtOnce {
			if got := p.Place(placementWish(deployments, placedAtOnce)); got.Missing > 0 {
				return nil, fmt.Errorf("level %d: %s", level, got.Message)
			}
			p.Another()
			deployments++
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rate, err := placeSingly(p, &deployments)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// placeSingly gives placements per second of this process's own time.
func placeSingly(p *decide.Placer, deployments *int) (float64, error) {
	began, err := usedTime(unix.RUSAGE_SELF)
	if err != nil {
		return 0, err
	}
	for range placedSingly / placedAtOnce {
		for range placedAtOnce {
			if got := p.Place(placementWish(*deployments, 1)); got.Missing > 0 {
				return 0, fmt.Errorf("no place: %s", got.Message)
			}
		}
		p.Another()
		*deployments++
	}
	ended, err := usedTime(unix.RUSAGE_SELF)
	return placedSingly / (ended - began).Seconds(), err
}

func placementRooms() []fleet.NodeRoom {
	rooms := make([]fleet.NodeRoom, placedNodes)
	for i := range rooms {
		rooms[i] = fleet.NodeRoom{
			Node: fleet.NodeName(fmt.Sprintf("node-%04d", i)), Site: fleet.SiteName(fmt.Sprintf("site-%03d", i%placedSites)),
			Labels: map[string]string{"disk": []string{"ssd", "hdd"}[i/placedSites%2], "zone": fmt.Sprint(i % 7)}, Pools: []fleet.PoolName{"general"},
			Drivers: []fleet.Driver{fleet.DriverProcess, fleet.DriverDocker}, Total: fleet.Resources{CPU: 64, Memory: 256 << 30},
		}
	}
	return rooms
}

// placementWish differs from one deployment to the next.
func placementWish(deployment, count int) decide.PlaceRequest {
	want := decide.PlaceRequest{
		Count: count, Driver: fleet.DriverProcess, Spec: fleet.PlacementSpec{Spread: fleet.SpreadSites},
		Resources: fleet.Resources{CPU: 0.25 + float64(deployment%8)/4, Memory: 1 << 30},
	}
	switch deployment % 3 {
	case 1:
		want.Spec.Labels = map[string]string{"disk": "ssd"}
	case 2:
		want.Spec.Pools, want.Spec.Spread = []fleet.PoolName{"general"}, fleet.SpreadNodes
	}
	return want
}
