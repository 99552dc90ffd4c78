package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	configSize = 64 << 10
	blockSize  = 64
	warmUp     = 20
	crowds     = 3 // times n make a round of throughput
	waitEnd    = 30 * time.Second

	latencyLimit    = 2.0
	throughputLimit = 1.5
	activityLimit   = 2.0
	taskLimit       = 3.0
)

// sites are those of the laptop region.
var sites = []fleet.SiteName{"plant-1", "plant-2"}

// instanceKey spreads instances over the sites.
func instanceKey(i int) fleet.ObjectKey {
	return fleet.InstanceKey(sites[i%len(sites)], fleet.InstanceName("bench-"+strconv.Itoa(i)))
}

// newConfig makes JSON of a size in its canonical form, so that the SHA-256 of these bytes
// is the revision hash; its strings are random, so that it compresses to half at best.
func newConfig(size, text int) []byte { return configOf(rand.Reader, size, text) }

// fixedConfig is the same JSON in each run.
func fixedConfig(size, text int) []byte { return configOf(mathrand.NewChaCha8([32]byte{}), size, text) }

func configOf(source io.Reader, size, text int) []byte {
	const open, end, between = `{"blocks":["`, `"]}`, `","`
	out := make([]byte, 0, size)
	out = append(out, open...)
	raw := make([]byte, (text+1)/2)
	for room := size - len(end); len(out) < room; {
		_, _ = io.ReadFull(source, raw) // never fails
		block := hex.AppendEncode(nil, raw)[:min(text, room-len(out))]
		out = append(out, block...)
		if room-len(out) > len(between) {
			out = append(out, between...)
		} else {
			out = append(out, strings.Repeat("0", room-len(out))...)
		}
	}
	return append(out, end...)
}

// delivered is one delivery as its caller saw it.
type delivered struct {
	took     time.Duration
	accepted time.Duration // of it, until the PUT was answered
	run      api.WorkflowRef
}

// deliver puts an instance and waits until both nodes are durable.
func (r *region) deliver(ctx context.Context, key fleet.ObjectKey, in api.InstancePut) (delivered, error) {
	began := time.Now()
	a, err := r.api.PutInstance(ctx, key, in, api.Mutation{})
	accepted := time.Since(began)
	if err != nil {
		return delivered{}, fmt.Errorf("put %s: %w", key, err)
	}
	if a.Operation == nil {
		return delivered{}, fmt.Errorf("put %s: nothing is to be delivered", key)
	}
	op := *a.Operation
	for !op.State.Ended() {
		if op, err = r.api.Operation(ctx, op.ID, waitEnd); err != nil {
			return delivered{}, fmt.Errorf("wait for the delivery of %s: %w", key, err)
		}
	}
	d := delivered{took: time.Since(began), accepted: accepted}
	if op.State != fleet.OperationSucceeded || op.Workflow == nil {
		return d, fmt.Errorf("the delivery of %s %s: %s %s", key, op.State, op.Reason, op.Message)
	}
	d.run = *op.Workflow
	return d, nil
}

// holds makes sure that both nodes of the site hold what was sent.
func (r *region) holds(ctx context.Context, key fleet.ObjectKey, hash fleet.Hash) error {
	o, _, err := r.api.Object(ctx, key)
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	var status api.InstanceStatus
	if err := json.Unmarshal(o.Status, &status); err != nil {
		return fmt.Errorf("read the status of %s: %w", key, err)
	}
	if len(status.Nodes) != 2 {
		return fmt.Errorf("%s is on %d nodes, not on two", key, len(status.Nodes))
	}
	for _, n := range status.Nodes {
		if n.RevisionHash != hash {
			return fmt.Errorf("node %s holds %s of %s, sent was %s", n.Node, n.RevisionHash, key, hash)
		}
	}
	return nil
}

func hashOf(body []byte) fleet.Hash {
	sum := sha256.Sum256(body)
	return fleet.Hash(hex.EncodeToString(sum[:]))
}

// cost is what deliveries cost in Temporal.
type cost struct{ runs, activities, tasks int }

// costOf reads the histories once all is done: a run may serve a delivery more while it ends.
func (r *region) costOf(ctx context.Context, all []api.WorkflowRef) (cost, error) {
	var c cost
	seen := map[string]bool{}
	for _, ref := range all {
		if seen[ref.RunID] {
			continue
		}
		seen[ref.RunID] = true
		if err := c.count(ctx, r, ref); err != nil {
			return c, fmt.Errorf("read the history of %s: %w", ref.ID, err)
		}
	}
	c.runs = len(seen)
	return c, nil
}

func (c *cost) count(ctx context.Context, r *region, ref api.WorkflowRef) error {
	events := r.temporal.GetWorkflowHistory(ctx, ref.ID, ref.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return err
		}
		switch e.GetEventType() { //nolint:exhaustive // of some sixty types two are counted
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			c.activities++
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
			c.tasks++
		}
	}
	return nil
}

func (c cost) figures(of string, deliveries int) []figure {
	each := func(n int) series { return series{ours: []float64{float64(n) / float64(deliveries)}} }
	return []figure{
		{
			name: of + ": regular activities per delivery", series: each(c.activities), by: byValue, limit: activityLimit,
			note: fmt.Sprintf("%d runs served %d deliveries", c.runs, deliveries),
		},
		{name: of + ": workflow tasks per delivery", series: each(c.tasks), by: byValue, limit: taskLimit},
	}
}

// measureLatency takes n deliveries of one instance, one after the other, and n bare workflows.
func measureLatency(ctx context.Context, l *lab) ([]figure, error) {
	r, b, err := l.startWithBare(ctx)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	defer b.stop()
	var all, bares []time.Duration
	var runs []api.WorkflowRef
	deliver := func(ctx context.Context) (time.Duration, error) {
		key, body := instanceKey(0), newConfig(configSize, blockSize)
		d, err := r.deliver(ctx, key, api.InstancePut{Config: body})
		if err == nil {
			err = r.holds(ctx, key, hashOf(body))
		}
		runs = append(runs, d.run)
		return d.took, err
	}
	for _, one := range []call{deliver, b.once} {
		if _, err := typical(warmUp, &all, one)(ctx, 0); err != nil {
			return nil, err
		}
	}
	all, runs = nil, nil
	s, err := l.inTurn(ctx, typical(l.n, &all, deliver), typical(l.n, &bares, b.once))
	if err != nil {
		return nil, err
	}
	spent, err := r.costOf(ctx, runs)
	f := figure{
		name: "latency: 64 KB JSON, p50", unit: "ms", series: s, limit: latencyLimit,
		note: fmt.Sprintf("p95 %s against %s", millis(quantile(all, 0.95)), millis(quantile(bares, 0.95))),
	}
	return append([]figure{f}, spent.figures("latency", len(runs))...), err
}

// measureThroughput takes a crowd of deliveries to instances that exist, each a different one,
// and a crowd of bare workflows.
func measureThroughput(ctx context.Context, l *lab) ([]figure, error) {
	r, b, err := l.startWithBare(ctx)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	defer b.stop()
	n := crowds * l.n
	bares := func(ctx context.Context, _ int) (float64, error) {
		took, err := together(ctx, n, func(ctx context.Context, _ int) error {
			_, err := b.once(ctx)
			return err
		})
		return float64(n) / took.Seconds(), err
	}
	if _, _, err := r.deliverAll(ctx, n); err != nil { // makes the instances
		return nil, err
	}
	if _, err := bares(ctx, 0); err != nil {
		return nil, err
	}
	var all []api.WorkflowRef
	s, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		runs, took, err := r.deliverAll(ctx, n)
		all = append(all, runs...)
		return float64(n) / took.Seconds(), err
	}, bares)
	if err != nil {
		return nil, err
	}
	spent, err := r.costOf(ctx, all)
	f := figure{name: "throughput: 64 KB JSON, 50 at a time", unit: "/s", series: s, limit: throughputLimit, least: true}
	return append([]figure{f}, spent.figures("throughput", len(all))...), err
}

func (l *lab) startWithBare(ctx context.Context) (*region, *bare, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, nil, err
	}
	b, err := startBare(r)
	if err != nil {
		r.stop()
	}
	return r, b, err
}

// deliverAll delivers to n instances, and makes sure that their nodes hold it.
func (r *region) deliverAll(ctx context.Context, n int) ([]api.WorkflowRef, time.Duration, error) {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = newConfig(configSize, blockSize)
	}
	runs := make([]api.WorkflowRef, n)
	took, err := together(ctx, n, func(ctx context.Context, i int) error {
		d, err := r.deliver(ctx, instanceKey(i), api.InstancePut{Config: bodies[i]})
		runs[i] = d.run
		return err
	})
	for i := range bodies {
		if err == nil {
			err = r.holds(ctx, instanceKey(i), hashOf(bodies[i]))
		}
	}
	return runs, took, err
}

// together runs n calls, a crowd at a time.
func together(ctx context.Context, n int, call func(ctx context.Context, i int) error) (time.Duration, error) {
	return atOnce(ctx, crowd, n, call)
}

// atOnce runs n calls, at most so many at a time.
func atOnce(ctx context.Context, most, n int, call func(ctx context.Context, i int) error) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(most)
	for i := range n {
		group.Go(func() error { return call(ctx, i) })
	}
	err := group.Wait()
	return time.Since(began), err
}
