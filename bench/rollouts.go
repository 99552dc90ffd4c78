package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	fetchTimes = 100 // a round
	fetchQuick = 0.99

	rollingReplicas = 100
	rollingInFlight = 5

	changing       = 100 // deployments of one replica
	changingAtOnce = 16

	rolledLook = 25 * time.Millisecond // many look at a time

	fetchLimit   = 4.0
	rollingLimit = 1.3  // times as many starts of so few, one after the other
	changesLimit = 20.0 // per second
	changesRatio = 0.4
)

// measureFetch times a declaration from its commit until the node that gets the replica has fetched it, against a bare
// workflow.
func measureFetch(ctx context.Context, l *lab) ([]figure, error) {
	d, end, err := l.startDeployments(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	b, err := startBare(d.region)
	if err != nil {
		return nil, err
	}
	defer b.stop()
	var all, bares []time.Duration
	for _, one := range []call{d.fetched, b.once} {
		if _, err := typical(warmUp, &all, one)(ctx, 0); err != nil {
			return nil, err
		}
	}
	all = nil
	s, err := l.inTurn(ctx, within(fetchQuick, fetchTimes, &all, d.fetched), within(fetchQuick, fetchTimes, &bares, b.once))
	if err != nil {
		return nil, err
	}
	return []figure{{
		name: "fetch: commit of a deployment until its node has fetched it, p99", unit: "ms", series: s, limit: fetchLimit,
		note: fmt.Sprintf("p50 %s against %s", millis(quantile(all, 0.5)), millis(quantile(bares, 0.5))),
	}}, nil
}

// fetched is the time from the beginning of the transaction that commits a new deployment until its node has written the
// definition down, which it fetches after its set.
func (d *deployments) fetched(ctx context.Context) (time.Duration, error) {
	d.releases++
	name := "fetched-" + strconv.Itoa(d.releases)
	if err := d.put(ctx, name, 1, d.anew); err != nil {
		return 0, err
	}
	if _, err := d.until(ctx, name, "HEALTHY", ""); err != nil {
		return 0, err
	}
	var node, definition string
	var began time.Time
	err := d.db.QueryRow(ctx, `SELECT r.node, encode(r.definition, 'hex'), e.at FROM replicas r
		JOIN events e ON e.kind = 'deployment' AND e.name = r.deployment AND e.type = 'created' WHERE r.deployment = $1`, name).Scan(&node, &definition, &began)
	if err != nil {
		return 0, fmt.Errorf("find what was declared: %w", err)
	}
	file, err := os.Stat(filepath.Join(d.dir, "nodes", node, "replicas", "definitions", definition))
	if err != nil {
		return 0, fmt.Errorf("find what was fetched: %w", err)
	}
	if err := d.delete(ctx, name); err != nil {
		return 0, err
	}
	return file.ModTime().Sub(began), d.gone(ctx, name)
}

// anew makes the content another one than before.
func (d *deployments) anew(in *api.DeploymentPut) { in.Env["RELEASE"] = strconv.Itoa(d.releases) }

// gone waits until nothing runs of a deployment.
func (d *deployments) gone(ctx context.Context, name string) error {
	_, err := d.look(ctx, `SELECT 'x', 0 FROM replicas WHERE deployment = $1 AND ended_at IS NULL HAVING count(*) = 0`, name)
	return err
}

// rolled waits until a deployment was rolled out so often, and nothing but its replicas lives of it.
func (d *deployments) rolled(ctx context.Context, name string, rollouts, replicas int) error {
	_, err := d.lookEvery(ctx, rolledLook, `SELECT 'x', 0 WHERE
		(SELECT count(*) FROM rollouts WHERE deployment = $1 AND state = 'DEPLOYED') = $2 AND
		(SELECT count(*) FROM replicas WHERE deployment = $1 AND ended_at IS NULL) = $3`, name, rollouts, replicas)
	return err
}

// measureRolling times a rollout of 100 replicas, five at a time, against twenty starts of five replicas.
func measureRolling(ctx context.Context, l *lab) ([]figure, error) {
	d, end, err := l.startDeployments(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	release := func(ctx context.Context) error {
		d.releases++
		return d.put(ctx, "rolled", rollingReplicas, d.anew, func(in *api.DeploymentPut) {
			in.Strategy.MaxInFlight = rollingInFlight
		})
	}
	if err := release(ctx); err != nil {
		return nil, err
	}
	if err := d.rests(ctx); err != nil {
		return nil, err
	}
	s, err := l.inTurn(ctx, func(ctx context.Context, round int) (float64, error) {
		began := time.Now()
		if err := release(ctx); err != nil {
			return 0, err
		}
		err := d.rolled(ctx, "rolled", round+1, rollingReplicas)
		return time.Since(began).Seconds(), err
	}, d.fives)
	return []figure{{
		name: fmt.Sprintf("rolling: %d replicas, max_in_flight %d", rollingReplicas, rollingInFlight), unit: "s", series: s, limit: rollingLimit,
	}}, err
}

// fives is the time of as many starts as make all replicas, from each PUT until five are healthy. Their ends are not in it.
func (d *deployments) fives(ctx context.Context, round int) (float64, error) {
	var sum time.Duration
	for i := range rollingReplicas / rollingInFlight {
		name := fmt.Sprintf("five-%d-%d", round, i)
		took, err := d.begin(ctx, name, rollingInFlight)
		if err == nil {
			err = d.gone(ctx, name)
		}
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum.Seconds(), nil
}

// measureChanges changes deployments of one replica, each from its PUT until the old replica is gone, against as many starts
// under guardians without a region.
func measureChanges(ctx context.Context, l *lab) ([]figure, error) {
	d, end, err := l.startDeployments(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := d.changed(ctx, 0); err != nil {
		return nil, err
	}
	if err := d.rests(ctx); err != nil {
		return nil, err
	}
	s, err := l.inTurn(ctx, func(ctx context.Context, round int) (float64, error) { return d.changed(ctx, round+1) },
		func(ctx context.Context, _ int) (float64, error) { return d.guarded(ctx, l) })
	name := fmt.Sprintf("changes: deployments of one replica, %d at a time", changingAtOnce)
	return []figure{
		{name: name + ", PUT until the old one is gone", unit: "/s", series: s, by: byValue, limit: changesLimit, least: true},
		{name: name + ", against starts and probes under guardians", unit: "/s", series: s, limit: changesRatio, least: true},
	}, err
}

// changed gives all deployments other content, so many at a time, and the rate at which their rollouts end. One query looks at all of
// them: a look at each would be a good part of the work.
func (d *deployments) changed(ctx context.Context, rollouts int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, deployPatience)
	defer cancel()
	d.releases++
	began := time.Now()
	for started, over := 0, 0; over < changing; {
		for ; started < min(changing, over+changingAtOnce); started++ {
			if err := d.put(ctx, "changed-"+strconv.Itoa(started), 1, d.anew); err != nil {
				return 0, err
			}
		}
		err := d.db.QueryRow(ctx, `SELECT count(*) FROM deployments d WHERE d.name LIKE 'changed-%' AND
			(SELECT count(*) FROM rollouts r WHERE r.deployment = d.name AND r.state = 'DEPLOYED') = $1 AND
			(SELECT count(*) FROM replicas r WHERE r.deployment = d.name AND r.ended_at IS NULL) = 1`, rollouts).Scan(&over)
		if err == nil {
			err = pause.For(ctx, rolledLook)
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the changes: %w", err)
		}
	}
	return changing / time.Since(began).Seconds(), nil
}
