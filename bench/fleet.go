package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	fleetSize   = 10_000
	fleetSites  = 10
	fleetAtOnce = 4 // sites
	fleetConfig = 4 << 10
	fleetText   = 100
	fleetRest   = 5 * time.Second

	fleetLimit        = 0.5   // of the yardstick
	fleetHistoryLimit = 2.0   // MB in all
	fleetMemoryLimit  = 400.0 // MB
)

// measureFleet changes 10,000 instances by one declared change, from its PUT until the
// operation says that both nodes of each are durable. The first change brings them there.
func measureFleet(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty", "--sites", strconv.Itoa(fleetSites))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	db, err := r.postgres(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	plain, err := r.plainFleet(ctx)
	if err != nil {
		return nil, err
	}
	defer plain.close()
	first, err := r.firstFleet(ctx, l, db, plain)
	if err != nil {
		return nil, err
	}
	var memory series
	s, err := l.inTurn(ctx, func(ctx context.Context, round int) (float64, error) {
		took, highest, err := r.changeWatched(ctx, db, round+1)
		memory.ours, memory.plain = append(memory.ours, highest), append(memory.plain, fleetSize*fleetConfig/megabyte)
		return fleetSize / took.Seconds(), err
	}, plain.rate)
	if err != nil {
		return nil, err
	}
	history, runs, err := r.fleetHistory(ctx)
	return []figure{
		{
			name: "fleet: 10,000 instances of 4 KB over 10 sites, one change", unit: "/s", series: s, limit: fleetLimit, least: true,
			note: fmt.Sprintf("the first delivery of all %.0f/s", fleetSize/first.Seconds()),
		},
		{
			name: "fleet: Temporal history of one change", unit: "MB", series: series{ours: []float64{history}}, by: byValue, limit: fleetHistoryLimit,
			note: fmt.Sprintf("%d runs", runs),
		},
		{name: "fleet: memory of the server", unit: "MB", series: memory, by: byValue, limit: fleetMemoryLimit},
	}, err
}

// changeWatched is changeFleet with the highest memory of the server, in MB. It ends when what a
// change leaves to be done after it is done: the yardstick is not to pay for that.
func (r *region) changeWatched(ctx context.Context, db *pgx.Conn, round int) (took time.Duration, highest float64, err error) {
	peaks, err := r.rest([]string{"server"})
	if err != nil {
		return 0, 0, err
	}
	peaks[0].idle = 0 // the limit is for all of it
	above, err := peaked(peaks, func() (err error) {
		took, err = r.changeFleet(ctx, db, round)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return took, float64(above[0]) / megabyte, pause.For(ctx, fleetRest)
}

// rate writes what one change writes, and gives instances per second.
func (p *plainFleet) rate(ctx context.Context, round int) (float64, error) {
	var batches [fleetSites]plainBatch
	for i := range fleetSize {
		body := newConfig(fleetConfig, fleetText)
		b := &batches[i%fleetSites]
		b.names = append(b.names, fmt.Sprintf("i-%05d", i))
		b.hashes, b.bodies = append(b.hashes, string(hashOf(body))), append(b.bodies, body)
	}
	began := time.Now()
	if err := p.change(ctx, batches); err != nil {
		return 0, fmt.Errorf("write the fleet plainly, round %d: %w", round, err)
	}
	return fleetSize / time.Since(began).Seconds(), nil
}

// declareFleet makes a template of 4 KB and instances with overrides of their own, and
// delivers nothing.
func (r *region) declareFleet(ctx context.Context) error {
	base := fmt.Sprintf(`{"base":%s}`, newConfig(fleetConfig, fleetText))
	request := api.PlanRequest{Objects: []api.Manifest{{Kind: "Template", Name: "bench", Spec: json.RawMessage(base)}}}
	for i := range fleetSize {
		request.Objects = append(request.Objects, api.Manifest{
			Kind: "Instance", Name: fmt.Sprintf("i-%05d", i), Site: fmt.Sprintf("plant-%d", i%fleetSites+1),
			Spec: fmt.Appendf(nil, `{"template":"bench","overrides":{"number":%d,"name":"i-%05d"}}`, i, i),
		})
	}
	applied, err := r.api.Apply(ctx, request, api.ReleaseNone, api.Mutation{})
	if err == nil && applied.Failed > 0 {
		err = fmt.Errorf("%d objects were not applied", applied.Failed)
	}
	return err
}

// firstFleet declares the instances and delivers them for the first time, which also gives the yardstick its
// first rows; then it lets the region come to rest.
func (r *region) firstFleet(ctx context.Context, l *lab, db *pgx.Conn, plain *plainFleet) (time.Duration, error) {
	l.say("declaring %d instances …", fleetSize)
	if err := r.declareFleet(ctx); err != nil {
		return 0, err
	}
	l.say("delivering them …")
	first, err := r.changeFleet(ctx, db, 0)
	if err != nil {
		return 0, err
	}
	if _, err := plain.rate(ctx, 0); err != nil {
		return 0, err
	}
	return first, pause.For(ctx, settle)
}

// changeFleet runs one change of all instances, and looks at what became of them.
func (r *region) changeFleet(ctx context.Context, db *pgx.Conn, round int) (time.Duration, error) {
	body := fmt.Appendf(nil, `{"change":{"patch":{"round":%d}},"selector":{},"sitesAtOnce":%d}`, round, fleetAtOnce)
	began := time.Now()
	op, err := r.putFleet(ctx, "bench", body)
	if err != nil {
		return 0, err
	}
	for !op.State.Ended() {
		if op, err = r.api.Operation(ctx, op.ID, waitEnd); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	if op.State != fleet.OperationSucceeded {
		return 0, fmt.Errorf("the change %s: %s %s", op.State, op.Reason, op.Message)
	}
	var durable, owed int
	err = db.QueryRow(ctx, `SELECT count(*), (SELECT count(*) FROM owed) FROM snapshots p JOIN node_held h
		ON h.site = p.site AND h.name = p.name AND h.revision = p.revision AND h.hash = p.body_hash
		JOIN subjects s ON s.site = p.site AND s.name = p.name AND s.desired_revision = p.revision`).Scan(&durable, &owed)
	if err == nil && (durable != 2*fleetSize || owed != 0) {
		err = fmt.Errorf("%d of %d copies are as the change says, %d are owed", durable, 2*fleetSize, owed)
	}
	return took, err
}

func (r *region) putFleet(ctx context.Context, name string, body []byte) (api.Operation, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimRight(r.doc.API, "/")+"/api/v1/fleets/"+name, bytes.NewReader(body))
	if err != nil {
		return api.Operation{}, fmt.Errorf("put the change: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+r.doc.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return api.Operation{}, fmt.Errorf("put the change: %w", err)
	}
	defer res.Body.Close()
	var out api.Accepted
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != http.StatusAccepted || out.Operation == nil {
		return api.Operation{}, fmt.Errorf("the change was answered %s: %w", res.Status, err)
	}
	return *out.Operation, nil
}

// fleetHistory is the size of all histories of fleet changes, in MB for one of the changes.
func (r *region) fleetHistory(ctx context.Context) (megabytes float64, runs int, err error) {
	var total int64
	var page []byte
	for {
		res, err := r.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: r.doc.Namespace, Query: "WorkflowType IN ('Fleet', 'FleetSite')", NextPageToken: page,
		})
		if err != nil {
			return 0, 0, fmt.Errorf("list the runs of the change: %w", err)
		}
		for _, e := range res.Executions {
			d, err := r.temporal.DescribeWorkflowExecution(ctx, e.Execution.WorkflowId, e.Execution.RunId)
			if err != nil {
				return 0, 0, fmt.Errorf("look at a run of the change: %w", err)
			}
			total += d.WorkflowExecutionInfo.HistorySizeBytes
			runs++
		}
		if page = res.NextPageToken; len(page) == 0 {
			const changes = rounds + 1
			return float64(total) / megabyte / changes, runs / changes, nil
		}
	}
}
