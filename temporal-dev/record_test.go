//go:build slow

package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

var (
	record     = flag.Bool("record", false, "write the histories into ../workflows/testdata/history")
	recordOnly = flag.String("only", "", "with -record: of these workflow types alone, with commas between")
)

// X16: the workflows of this version run on a real Temporal, each to its end; with -record
// their histories become part of the corpus that TestReplay replays.
func TestRecordHistories(t *testing.T) {
	t.Parallel()
	realOnly(t)
	data := t.TempDir()
	doc, _ := upRegion(t, data, 1)
	c, err := client.Dial(client.Options{HostPort: doc.Temporal, Namespace: doc.Namespace, Identity: starter, Logger: noLog{}})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
	runs := map[string]client.WorkflowRun{}
	ends := func(id, name string, in ...any) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueServers}, name, in...)
		require.NoError(t, err)
		runs[name] = c.GetWorkflow(ctx, id, run.GetRunID())
		return run.Get(ctx, nil)
	}
	start := func(id, name string, in ...any) { require.NoError(t, ends(id, name, in...)) }
	start("record-deploy", workflows.TypeDeployInstance, workflows.DeployInstanceInput{Site: "plant-1", Instance: "press-7"})
	start("record-state", workflows.TypeSetInstanceState, workflows.SetInstanceStateInput{Site: "plant-1", Instance: "press-7", State: "disabled"})
	start("record-reconcile", workflows.TypeReconcileNode, workflows.ReconcileNodeInput{Node: "plant-1-b"})
	start("record-purge", workflows.TypePurgePending)
	start("record-sweep", workflows.TypeSweepOperations)
	start("record-sweep-nodes", workflows.TypeSweepNodes, workflows.SweepNodesInput{Shards: 1})
	start("record-collect", workflows.TypeCollectGarbage)
	recordFleet(t, doc, start)
	recordDeployment(t, doc, start)
	runs[workflows.TypeDeployment] = c.GetWorkflow(ctx, fleet.DeploymentSubject(recordedDeployment), "")
	require.NoError(t, runs[workflows.TypeDeployment].Get(ctx, nil))
	start("record-sync-runtime", workflows.TypeSyncRuntime, workflows.SyncRuntimeInput{Shards: 1})
	start(fleet.RegionSubject("nobody"), workflows.TypeWatchRegion, workflows.WatchRegionInput{Peer: "nobody"})
	start(fleet.SyncSubject("nobody"), workflows.TypeSync, workflows.SyncInput{Peer: "nobody"})
	require.ErrorContains(t, ends("record-sync", workflows.TypeSyncRegion, workflows.SyncRegionInput{Peer: "no-peer"}), "is not a peer, or is disabled")
	recordPolicy(t, doc, start)
	runs[workflows.TypeHandOverRegion], runs[workflows.TypePolicy] = recordHandOver(t, data, doc, c)
	recordModule(t, data)
	start("record-execute", workflows.TypeExecuteModule, workflows.ExecuteModuleInput{Module: "record.Echo", Input: []byte(`{"n":1}`)})
	runs[workflows.TypeFleet] = c.GetWorkflow(ctx, fleet.FleetSubject(recordedFleet), "")
	runs[workflows.TypeFleetSite] = c.GetWorkflow(ctx, workflows.FleetSiteID(recordedFleet, 1, 1, "plant-1"), "")
	runs[workflows.TypeInstance] = c.GetWorkflow(ctx, fleet.InstanceSubject("plant-1", "press-7"), "")
	require.NoError(t, runs[workflows.TypeInstance].Get(ctx, nil))
	runs[workflows.TypeDeliverSite] = recordCrowd(t, doc, c)
	start("record-failover", workflows.TypeFailoverSite, workflows.FailoverSiteInput{Site: "plant-1", To: "plant-1-b"})
	start("record-failback", workflows.TypeFailoverSite, workflows.FailoverSiteInput{Site: "plant-1", To: "plant-1-a"})
	// The last: its node is cordoned from then on.
	start("record-drain", workflows.TypeDrainNode, workflows.DrainNodeInput{Node: "plant-1-b", Reason: "recorded", DeadlineSeconds: 20})
	runs[workflows.TypeNode] = c.GetWorkflow(ctx, fleet.NodeSubject("plant-1-b"), "")
	runs[workflows.TypeDrain] = c.GetWorkflow(ctx, fleet.DrainSubject("plant-1-b"), "")
	runs[workflows.TypeSite] = c.GetWorkflow(ctx, fleet.SiteSubject("plant-1"), "")
	var executed workflows.DoorResult
	require.NoError(t, runs[workflows.TypeExecuteModule].Get(ctx, &executed))
	runs[workflows.TypeExecution] = c.GetWorkflow(ctx, fleet.ExecutionSubject(executed.Operation), "")
	for name := range workers.Workflows() {
		require.NotNil(t, runs[name], name)
		if err := runs[name].Get(ctx, nil); name != workflows.TypeSyncRegion {
			require.NoError(t, err, name)
		}
		h := historyOf(ctx, t, c, runs[name])
		require.NotEmpty(t, h.Events, name)
		if *record && (*recordOnly == "" || slices.Contains(strings.Split(*recordOnly, ","), name)) {
			writeHistory(t, filepath.Join("..", "workflows", "testdata", "history", name, "v1.json.gz"), h)
		}
	}
}

// recordModule serves a module, and registers it as a provider would.
func recordModule(t *testing.T, data string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", loopback+":0")
	require.NoError(t, err)
	server := grpc.NewServer()
	nodev1.RegisterExecutorServer(server, echoModule{})
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	t.Cleanup(server.Stop)
	db := recordedDatabase(t, data)
	_, err = db.Exec(t.Context(), `INSERT INTO connections (id, state, identity, provider, module_namespace, executor, protocol, server, active_at)
		SELECT repeat('e', 32), 'Active', 'token:record', 'record', 'record', $1, 1, id, now() FROM servers LIMIT 1`, listener.Addr().String())
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `INSERT INTO modules (connection, module_namespace, name) VALUES (repeat('e', 32), 'record', 'Echo')`)
	require.NoError(t, err)
}

// recordedDatabase connects to the region's database until the test ends.
func recordedDatabase(t *testing.T, data string) *pgx.Conn {
	t.Helper()
	var known struct {
		Ports map[string]int `json:"ports"`
	}
	require.NoError(t, readJSON(filepath.Join(data, "state.json"), &known))
	password, err := os.ReadFile(filepath.Join(data, "postgres.password"))
	require.NoError(t, err)
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword("holdfast", strings.TrimSpace(string(password))),
		Host: net.JoinHostPort(loopback, strconv.Itoa(known.Ports["postgres"])), Path: "/holdfast", RawQuery: "sslmode=disable",
	}
	db, err := pgx.Connect(t.Context(), at.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) }) // it was only used here
	return db
}

// echoModule answers what it is given.
type echoModule struct {
	nodev1.UnimplementedExecutorServer
}

func (echoModule) Execute(_ context.Context, in *nodev1.ExecuteRequest) (*nodev1.ExecuteResponse, error) {
	return &nodev1.ExecuteResponse{Output: in.GetInput()}, nil
}

// recordCrowd asks for more than a site delivers one by one, until it is delivered together.
func recordCrowd(t *testing.T, doc devDoc, c client.Client) client.WorkflowRun {
	t.Helper()
	a, err := api.NewClient(doc.API, doc.Token)
	require.NoError(t, err)
	id, round := fleet.DeliverSubject("plant-1"), 0
	waitFor(t, "a crowd is delivered together", func(ctx context.Context) error {
		round++
		var group errgroup.Group
		for i := range 30 {
			group.Go(func() error {
				key := fleet.InstanceKey("plant-1", fleet.InstanceName(fmt.Sprintf("crowd-%d", i)))
				_, err := a.PutInstance(ctx, key, api.InstancePut{Config: fmt.Appendf(nil, `{"round":%d}`, round)}, api.Mutation{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		_, err := c.DescribeWorkflowExecution(ctx, id, "")
		return err
	})
	run := c.GetWorkflow(t.Context(), id, "")
	require.NoError(t, run.Get(t.Context(), nil))
	return run
}

// recordPolicy applies the policy of a project.
func recordPolicy(t *testing.T, doc devDoc, start func(id, name string, in ...any)) {
	t.Helper()
	a, err := api.NewClient(doc.API, doc.Token)
	require.NoError(t, err)
	_, err = a.PutProject(t.Context(), "recorded", api.ProjectPut{
		MultiRegionPolicy: &api.MultiRegionPolicy{EnabledRegions: []string{regionName}, DefaultControlRegion: regionName},
	}, api.Mutation{})
	require.NoError(t, err)
	start("record-policy", workflows.TypeApplyRegionPolicy, workflows.ApplyRegionPolicyInput{Holder: "project/recorded"})
}

const recordedFleet = "speed"

// recordFleet runs a change of the examples in two waves.
func recordFleet(t *testing.T, doc devDoc, start func(id, name string, in ...any)) {
	t.Helper()
	c, err := api.NewClient(doc.API, doc.Token)
	require.NoError(t, err)
	_, err = c.StageFleet(t.Context(), recordedFleet, api.FleetPut{
		Change: api.FleetChange{Patch: []byte(`{"speed":7}`)}, Waves: []fleet.FleetWave{{Percent: 50}}, BatchSize: 1,
	}, api.Mutation{})
	require.NoError(t, err)
	start("record-fleet", workflows.TypeDeployFleet, workflows.DeployFleetInput{Fleet: recordedFleet})
}

const recordedDeployment = fleet.DeploymentName("web")

// recordDeployment runs a deployment from its release to its end, by each of the doors.
func recordDeployment(t *testing.T, doc devDoc, start func(id, name string, in ...any)) {
	t.Helper()
	c, err := api.NewClient(doc.API, doc.Token)
	require.NoError(t, err)
	_, err = c.PutDeployment(t.Context(), string(recordedDeployment), api.DeploymentPut{
		Command: []string{"/bin/sleep", "infinity"}, Health: &fleet.HealthCheck{Type: fleet.HealthNone}, StopSeconds: 1,
	}, api.Mutation{})
	require.NoError(t, err)
	in, two := workflows.DeploymentDoorInput{Deployment: recordedDeployment}, 2
	start("record-converge", workflows.TypeConvergeDeployment, in)
	start("record-scale", workflows.TypeScaleDeployment, workflows.ScaleDeploymentInput{Deployment: recordedDeployment, Replicas: &two})
	start("record-restart", workflows.TypeRestartDeployment, in)
	_, err = c.PutDeployment(t.Context(), string(recordedDeployment), api.DeploymentPut{
		Command: []string{"/bin/sleep", "3600"}, Health: &fleet.HealthCheck{Type: fleet.HealthNone}, StopSeconds: 1,
		Strategy: api.Strategy{MinHealthyTime: new(3600.0)},
	}, api.Mutation{})
	require.NoError(t, err)
	start("record-rollout", workflows.TypeRolloutDeployment, workflows.RolloutDeploymentInput{Deployment: recordedDeployment, Verb: "pause"})
	start("record-destroy", workflows.TypeDestroyDeployment, in)
}

func historyOf(ctx context.Context, t *testing.T, c client.Client, run client.WorkflowRun) *historypb.History {
	t.Helper()
	h := &historypb.History{}
	events := c.GetWorkflowHistory(ctx, run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		h.Events = append(h.Events, e)
	}
	return h
}

func writeHistory(t *testing.T, file string, h *historypb.History) {
	t.Helper()
	body, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(h)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	f, err := os.Create(file)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	_, err = z.Write(body)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}

type noLog struct{}

func (noLog) Debug(string, ...any) {}
func (noLog) Info(string, ...any)  {}
func (noLog) Warn(string, ...any)  {}
func (noLog) Error(string, ...any) {}
