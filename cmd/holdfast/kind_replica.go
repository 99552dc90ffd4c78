package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var replicaHeader = []string{"REPLICA", "NODE", "STATE", "HEALTH", "REVISION", "ENDPOINT", "RESTARTS", "REASON", "SINCE", "AGE"}

// kindReplica is not a declared kind, but replicas can be deleted: a new one replaces them.
const kindReplica = "replica"

func (c *cli) replicaItem(r api.Replica) item {
	return item{name: "replica/" + replicaName(r), value: r, cells: append([]string{replicaName(r)}, c.replicaCells(r)...)}
}

// replicaName is a replica's name for people.
func replicaName(r api.Replica) string { return r.Deployment + "/" + string(r.ID) }

func (c *cli) replicaCells(r api.Replica) []string {
	health := string(r.Health)
	switch {
	case r.EndedAt != nil:
		health = ""
	case r.State == fleet.ReplicaHealthy && !r.Routable:
		health += ", not ready" + causeText(r.Failing.Readiness)
	default:
		health += causeText(r.Failing.Health)
	}
	return []string{
		r.Node, string(r.State), health, number(r.Revision), r.Endpoint, fmt.Sprint(r.Restarts), r.Reason, c.ago(r.Since), c.ago(r.CreatedAt),
	}
}

// causeText is why a check fails, "" if it does not.
func causeText(f *api.CheckFailure) string {
	if f == nil {
		return ""
	}
	return ": " + f.Cause
}

// replicasTable is a table of the replicas of one deployment.
func (c *cli) replicasTable(replicas []api.Replica) *table {
	t := newTable(append(replicaHeader[:len(replicaHeader):len(replicaHeader)], "MESSAGE"))
	for _, r := range replicas {
		t.add(append(append([]string{string(r.ID)}, c.replicaCells(r)...), replicaMessage(r)))
	}
	return t
}

// replicaMessage is the message of a replica with why its checks fail, of a starting one with its
// start-up deadline, and of others with when they are proven.
func replicaMessage(r api.Replica) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	add(r.Message)
	if !fleet.ByHealth(r.Reason) { // else the message says it
		add(r.Failing.String())
	}
	if r.Phase == fleet.PhasePreStart {
		add("its preStart commands run")
	}
	if r.StartupDeadline != nil {
		add("it must be healthy by " + stamp(*r.StartupDeadline))
	}
	if r.ProvenAt != nil {
		add("it is proven at " + stamp(*r.ProvenAt))
	}
	return strings.Join(parts, ", ")
}

func listReplicas(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
	replicas, next, err := collect(in.limit, func(p api.Page) (api.List[api.Replica], error) {
		p.Project = c.flags.project
		return client.Replicas(ctx, api.ReplicaQuery{Page: p, Deployment: in.deployment, Node: in.node, Ended: in.ended})
	})
	var items []item
	for _, r := range replicas {
		items = append(items, c.replicaItem(r))
	}
	return items, next, err
}

// oneReplica parses ID, or DEPLOYMENT/ID.
func oneReplica(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
	deployment, id, qualified := strings.Cut(name, "/")
	if !qualified {
		deployment, id = "", name
	}
	if !fleet.ValidReplicaID(id) {
		return item{}, fleet.Errorf(fleet.Invalid, "invalid replica %.80q", name).WithHint("use ID or DEPLOYMENT/ID, as in holdfast get replicas")
	}
	r, err := client.Replica(ctx, id)
	if err == nil && qualified && r.Deployment != deployment {
		err = fleet.Errorf(fleet.NotFound, "deployment %s has no replica %s", deployment, id)
	}
	return c.replicaItem(r), err
}

// addReplicaFlags adds flags that restrict a list of replicas.
func (c *cli) addReplicaFlags(cmd *cobra.Command, in *listing) {
	cmd.Flags().StringVar(&in.deployment, "deployment", "", "for replicas: only those of this deployment")
	cmd.Flags().StringVar(&in.node, "node", "", "for replicas: only those on this node")
	cmd.Flags().BoolVar(&in.ended, "ended", false, "for replicas: include ended ones; for deployments: only ended ones, as long as their records are stored")
	complete(cmd, "deployment", c.completeObjects("deployment"))
	complete(cmd, "node", c.completeObjects("node"))
}

// deleteReplicas ends replicas, DEPLOYMENT/ID each. It does not wait, because a new replica replaces each.
func (c *cli) deleteReplicas(ctx context.Context, names []string, f *mutationFlags) error {
	if f.ifMatch != "" {
		return &usageError{fmt.Errorf("--if-match works only for declared objects: a replica has no ETag")}
	}
	if len(names) > 1 && f.key != "" {
		return &usageError{fmt.Errorf("--idempotency-key needs exactly one replica")}
	}
	for _, name := range names {
		deployment, id, qualified := strings.Cut(name, "/")
		if !qualified || !fleet.ValidReplicaID(id) {
			return &usageError{fmt.Errorf("invalid replica %q: want DEPLOYMENT/ID", name)}
		}
		if err := fleet.ValidateName("deployment", deployment); err != nil {
			return err
		}
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	v, errs := view{header: replicaHeader, single: len(names) == 1}, []error(nil)
	for _, name := range names {
		deployment, id, _ := strings.Cut(name, "/")
		r, err := client.DeleteReplica(ctx, deployment, id, f.mutation())
		if err != nil {
			errs = append(errs, fmt.Errorf("replica/%s: %w", name, err))
			continue
		}
		v.items = append(v.items, c.replicaItem(r))
		if c.flags.output == formatTable {
			fmt.Fprintf(c.stdout, "replica/%s delete accepted%s\n", name, deletedReplicaText(f, r))
		}
	}
	if c.flags.output != formatTable && len(v.items) > 0 {
		v.single = v.single && len(errs) == 0
		if err := c.print(v); err != nil {
			return err
		}
	}
	return c.reportAll(errs)
}

func deletedReplicaText(f *mutationFlags, r api.Replica) string {
	switch {
	case f.dryRun:
		return " (dry run, nothing was changed)"
	case r.State == fleet.ReplicaTerminated:
		return ", it has ended"
	}
	return ", a new one replaces it"
}
