package replicas

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Sample is the resources that a replica uses.
type Sample struct {
	ID fleet.ReplicaID `json:"id"`
	// CPU is in cores, averaged since the previous sample; Memory is in bytes.
	CPU    float64 `json:"cpu"`
	Memory int64   `json:"memory"`
}

// samples computes rates from the drivers' measurements.
type samples struct {
	at   time.Duration
	last map[fleet.ReplicaID]Usage
}

// next leaves out replicas that were not measured before: a rate needs two measurements.
func (s *samples) next(now time.Duration, used map[fleet.ReplicaID]Usage) []Sample {
	var all []Sample
	span := (now - s.at).Seconds()
	for id, u := range used {
		if before, has := s.last[id]; has && span > 0 {
			all = append(all, Sample{ID: id, CPU: max(u.CPU-before.CPU, 0) / span, Memory: u.Memory})
		}
	}
	s.at, s.last = now, used
	slices.SortFunc(all, func(a, b Sample) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// sample measures all replicas of one driver periodically. It does not repeat a sample that was not sent: the
// next one has newer values.
func (k *Keeper) sample(ctx context.Context, driver Driver) error {
	if err := k.enrolled(ctx); err != nil {
		return err
	}
	every := time.NewTicker(k.opt.SampleEvery)
	defer every.Stop()
	var s samples
	for {
		k.lookAtStrangers(ctx, driver)
		used, err := driver.Usage(ctx)
		for some := range slices.Chunk(s.next(k.opt.Now(), used), fleet.MaxNodeReplicas) {
			err = errors.Join(err, k.opt.Region.ReplicaSamples(ctx, some))
		}
		if err != nil && ctx.Err() == nil && !fleet.KindOf(err).Retryable() {
			k.opt.Log.Warn("send the usage of replicas", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
}

// lookAtStrangers reports strangers that ended or run again; they have no worker.
func (k *Keeper) lookAtStrangers(ctx context.Context, driver Driver) {
	k.mu.Lock()
	var ids []fleet.ReplicaID
	for id, at := range k.strangers {
		if k.opt.Drivers[at.driver] == driver {
			ids = append(ids, id)
		}
	}
	k.mu.Unlock()
	for _, id := range ids {
		found, err := driver.Look(ctx, id)
		if err != nil {
			return // the next round retries
		}
		k.mu.Lock()
		if at, is := k.strangers[id]; is && at.Running != found.Running {
			at.Running, at.PID = found.Running, found.PID
			k.strangers[id] = at
			k.feed.changed(id)
		}
		k.mu.Unlock()
	}
}
