package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const tryLong = `Start one replica of a deployment's manifest to see whether it gets and stays healthy, and delete it again.

The trial is a separate deployment, NAME-trial-XXXX, with one replica and the label
holdfast.dev/trial=NAME; everything else is as in the manifest. The command shows its states and its
output until the replica is proven (0): healthy and ready for min_healthy_time; or until the trial
fails, also by a failure before that, or its deadline passes (7: the reason and the last output follow). It always deletes the trial, also on an interrupt. If this
command is killed, the trial stays: "holdfast get deployments" shows it, "holdfast delete deployment"
ends it.`

// useTried is what is done with a manifest, for errors.
const useTried = "tried"

// trialLabel names the deployment that a trial is for.
const trialLabel = "holdfast.dev/trial"

func (c *cli) newTryCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use: "try -f FILE|-", Short: "Start one replica of a deployment's manifest, see whether it gets and stays healthy, and delete it", Long: tryLong,
		Args: cobra.NoArgs, Example: "  holdfast try -f web.yaml --timeout 5m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			manifests, err := c.readManifests([]string{file}, useTried)
			if err != nil {
				return err
			}
			if len(manifests) != 1 || manifests[0].key().Kind != fleet.KindDeployment {
				return fleet.Errorf(fleet.Invalid, "try accepts exactly one deployment").WithHint("apply the objects that it refers to first")
			}
			client, err := c.connect()
			if err != nil {
				return err
			}
			t, err := c.newTrial(client, manifests[0])
			if err != nil {
				return err
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the manifest, - for stdin")
	_ = cmd.MarkFlagRequired("filename") // it exists
	return cmd
}

// trialResult is the result of a trial, in the shape of json and yaml output.
type trialResult struct {
	Name       string               `json:"name"`
	Deployment string               `json:"deployment"`
	Healthy    bool                 `json:"healthy"`
	State      fleet.OperationState `json:"state,omitempty"`
	Reason     string               `json:"reason,omitempty"`
	Message    string               `json:"message,omitempty"`
	Seconds    float64              `json:"seconds"`
	Replicas   []api.Replica        `json:"replicas"`
	Causes     []api.Cause          `json:"causes"`
	Output     string               `json:"output"`
	Deleted    bool                 `json:"deleted"`
}

// trial is a temporary deployment.
type trial struct {
	*cli
	client *api.Client
	put    api.DeploymentPut
	logs   *replicaLogReader
	tail   *tailWriter
	result trialResult
}

// maxName is the longest allowed name.
const maxName = 63

// maxTrialOutput limits the output in the result.
const maxTrialOutput = 4 << 10

func (c *cli) newTrial(client *api.Client, m *manifest) (*trial, error) {
	var number [2]byte
	if _, err := rand.Read(number[:]); err != nil {
		return nil, fmt.Errorf("name the trial: %w", err)
	}
	ending := "-trial-" + hex.EncodeToString(number[:])
	name := strings.TrimRight(m.Name[:min(len(m.Name), maxName-len(ending))], "-") + ending
	put := m.deployed.DeploymentPut
	put.Project, put.Reason = c.projectOf(m), "a trial of "+m.Name
	put.State, put.Replicas = fleet.StateStarted, api.Exactly(1)
	put.Labels = maps.Clone(m.Labels)
	if put.Labels == nil {
		put.Labels = map[string]string{}
	}
	put.Labels[trialLabel] = m.Name
	t := &trial{cli: c, client: client, put: put, tail: &tailWriter{most: maxTrialOutput}, result: trialResult{
		Name: name, Deployment: m.Name, Replicas: []api.Replica{}, Causes: []api.Cause{},
	}}
	shown := *c
	if c.flags.output != formatTable { // only the result is printed
		shown.stdout, shown.flags.output = t.tail, formatTable
	}
	t.logs = shown.newReplicaLogReader(client, name, "")
	return t, nil
}

// run starts the trial, follows it, and always deletes it.
func (t *trial) run(ctx context.Context) error {
	began := t.now()
	err := t.follow(ctx)
	t.result.Seconds = t.now().Sub(began).Seconds()
	t.collect(ctx)
	gone := t.remove(ctx)
	t.result.Deleted = gone == nil
	return errors.Join(err, gone, t.writeResult())
}

// follow shows states and output until the operation has ended.
func (t *trial) follow(ctx context.Context) error {
	accepted, err := t.client.PutDeployment(ctx, t.result.Name, t.put, api.Mutation{})
	if err != nil {
		return err
	}
	if accepted.Operation == nil {
		return fleet.Errorf(fleet.Internal, "the region started nothing for %s", t.result.Name)
	}
	op := *accepted.Operation
	p := t.newProgress()
	t.picture = p
	defer p.clear()
	for !op.State.Ended() {
		p.show(op)
		next, err := t.nextState(ctx, t.client, op)
		if err != nil {
			return stopped(t.result.Name, err)
		}
		p.clear()
		if err := t.logs.round(ctx); err != nil && exitCodeOf(err) != exitUnreachable {
			return stopped(t.result.Name, err)
		}
		op = next
	}
	if op.State == fleet.OperationSucceeded {
		if op, err = t.prove(ctx, op); err != nil {
			return stopped(t.result.Name, err)
		}
	}
	op.Message = strings.TrimSuffix(op.Message, decide.AdviceGivenUp) // nothing is left of it
	t.result.State, t.result.Reason, t.result.Message = op.State, op.Reason, op.Message
	t.result.Healthy = op.State == fleet.OperationSucceeded
	return endOf(op)
}

// reasonNotProven is why a trial fails whose replica was healthy, and failed too soon.
const reasonNotProven = "not_proven"

// prove waits until the replica is proven. If it fails before, the trial has failed: the region would replace it again and again.
func (t *trial) prove(ctx context.Context, op api.Operation) (api.Operation, error) {
	tried, asked := api.Replica{}, t.now()
	for {
		l, err := t.client.Replicas(ctx, api.ReplicaQuery{Deployment: t.result.Name})
		away := err != nil && ctx.Err() == nil && exitCodeOf(err) == exitUnreachable && t.now().Sub(asked) < patience
		if err != nil && !away {
			return op, err
		}
		if err == nil {
			asked = t.now()
			if tried.ID == "" && len(l.Items) > 0 {
				tried = l.Items[0]
			}
			if end, over := verdict(op, tried, l.Items); over {
				return end, nil
			}
		}
		if err := t.logs.round(ctx); err != nil && exitCodeOf(err) != exitUnreachable {
			return op, err
		}
		if err := pause.For(ctx, t.poll); err != nil {
			return op, err
		}
	}
}

// verdict is how a trial ends whose replica failed since, or is proven.
func verdict(op api.Operation, tried api.Replica, now []api.Replica) (end api.Operation, over bool) {
	broke, proven := proofOf(tried, now)
	if broke {
		op.State, op.Reason = fleet.OperationFailed, reasonNotProven
		op.Message = fmt.Sprintf("replica %s was healthy, and failed before it was proven", tried.ID)
	}
	return op, broke || proven
}

// proofOf reports whether the tried replica failed since, or is proven.
func proofOf(tried api.Replica, now []api.Replica) (broke, proven bool) {
	i := slices.IndexFunc(now, func(r api.Replica) bool { return r.ID == tried.ID })
	if i < 0 {
		return true, false
	}
	r := now[i]
	if r.State == fleet.ReplicaUnhealthy || r.State == fleet.ReplicaTerminating || r.Restarts > tried.Restarts {
		return true, false
	}
	return false, r.Routable && r.ProvenAt == nil
}

// stopped is the error of a trial that did not reach its end.
func stopped(name string, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &fleet.Error{Kind: "timeout", Message: "timed out waiting for trial " + name, Err: err}
	case errors.Is(err, context.Canceled):
		return &fleet.Error{Kind: "interrupted", Message: "trial " + name + " was interrupted", Err: err}
	}
	return err
}

// trialLimit is how long a region may take to report on a finished trial, and to delete it.
const trialLimit = 30 * time.Second

// lastRounds is how often output is read after the end: a node sends it every few seconds.
const lastRounds = 4

// collect gathers what is known of a trial before it is deleted. Whatever cannot be read is missing.
func (t *trial) collect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialLimit)
	defer cancel()
	for range lastRounds {
		if t.result.State == "" || t.result.Healthy || t.logs.round(ctx) != nil || pause.For(ctx, t.poll) != nil {
			break
		}
	}
	t.result.Output = t.tail.text
	e, err := t.client.Explain(ctx, t.result.Name)
	if err != nil {
		return
	}
	t.result.Replicas, t.result.Causes = e.Replicas, e.Causes
	if e.Output != nil {
		t.result.Output = e.Output.Text
	}
}

// remove deletes the trial, and retries while the region is briefly unreachable. The request that created it may
// have succeeded even if its response was lost.
func (t *trial) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialLimit)
	defer cancel()
	key := fleet.DeploymentKey(fleet.DeploymentName(t.result.Name))
	for {
		_, err := t.client.Delete(ctx, key, api.Mutation{})
		if err == nil || fleet.KindOf(err) == fleet.NotFound {
			return nil
		}
		if exitCodeOf(err) != exitUnreachable || pause.For(ctx, t.poll) != nil {
			return fmt.Errorf("the trial was not deleted (holdfast delete deployment %s): %w", t.result.Name, err)
		}
	}
}

// writeResult prints the result: as an object, or as a line, with the last output of a failure.
func (t *trial) writeResult() error {
	r := t.result
	if t.flags.output != formatTable {
		return t.print(single(nil, item{name: deploymentPrefix + r.Name, value: r}))
	}
	switch {
	case r.Healthy:
		for _, replica := range r.Replicas {
			fmt.Fprintf(t.stdout, "replica %s on %s at %s\n", replica.ID, clean(string(replica.Node)), clean(first(replica.Endpoint, "no port")))
		}
		fmt.Fprintf(t.stdout, "trial %s is proven after %.1f s\n", r.Name, r.Seconds)
	case r.State != "":
		for _, cause := range r.Causes {
			fmt.Fprintf(t.stdout, "%s (%s): %s\n", clean(cause.Code), clean(cause.Reason), clean(cause.Message))
		}
		if r.Output != "" {
			fmt.Fprintln(t.stdout, "Its last output:")
			for line := range strings.Lines(r.Output) {
				fmt.Fprintf(t.stdout, "  | %s\n", cleanLines(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	return nil
}

// tailWriter keeps the last part of what is written.
type tailWriter struct {
	most int
	text string
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.text += string(p)
	w.text = w.text[max(len(w.text)-w.most, 0):]
	return len(p), nil
}
