package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

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
	p := decide.NewPlacer(placementRooms())
	w := l.watch()
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
	least := rates[0]
	for _, r := range rates {
		least = min(least, r)
	}
	f := atLeast("placement: 5,000 nodes, 150,000 replicas, one by one, slowest tenth", least, placedRate)
	f.measured, f.unit = fmt.Sprintf("%.0f /s", least), "/s"
	f.note = fmt.Sprintf("first tenth %.0f /s, last tenth %.0f /s, of one core's time", rates[0], rates[placedLevels-1])
	flat := atLeast("placement: last tenth of the fleet against the first", rates[placedLevels-1]/rates[0], placedFlat)
	flat.measured, flat.yardstick = fmt.Sprintf("%.0f /s", rates[placedLevels-1]), fmt.Sprintf("%.0f /s", rates[0])
	return w.stamp([]figure{f, flat})
}

// placeSingly gives placements per second of this process's own time.
func placeSingly(p *decide.Placer, deployments *int) (float64, error) {
	began, err := ownTime()
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
	ended, err := ownTime()
	return placedSingly / (ended - began).Seconds(), err
}

func ownTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the time that was used: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
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
