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

// kindReplica is a kind that nobody declares, and that can be deleted nevertheless: another
// takes its place.
const kindReplica = "replica"

func (c *cli) replicaItem(r api.Replica) item {
	return item{name: "replica/" + replicaName(r), value: r, cells: append([]string{replicaName(r)}, c.replicaCells(r)...)}
}

// replicaName is how people name a replica.
func replicaName(r api.Replica) string { return r.Deployment + "/" + string(r.ID) }

func (c *cli) replicaCells(r api.Replica) []string {
	health := string(r.Health)
	if r.EndedAt != nil {
		health = ""
	}
	return []string{
		r.Node, string(r.State), health, number(r.Revision), r.Endpoint, fmt.Sprint(r.Restarts), r.Reason, c.ago(r.Since), c.ago(r.CreatedAt),
	}
}

// replicasTable is a table of the replicas of one deployment.
func (c *cli) replicasTable(replicas []api.Replica) *table {
	t := newTable(append(replicaHeader[:len(replicaHeader):len(replicaHeader)], "MESSAGE"))
	for _, r := range replicas {
		t.add(append(append([]string{string(r.ID)}, c.replicaCells(r)...), replicaMessage(r)))
	}
	return t
}

// replicaMessage says by when one that starts has to answer.
func replicaMessage(r api.Replica) string {
	if r.StartupDeadline == nil {
		return r.Message
	}
	text := "it has to answer until " + stamp(*r.StartupDeadline)
	if r.Message != "" {
		text = r.Message + ", " + text
	}
	return text
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

// oneReplica reads ID, or DEPLOYMENT/ID.
func oneReplica(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
	deployment, id, qualified := strings.Cut(name, "/")
	if !qualified {
		deployment, id = "", name
	}
	if !fleet.ValidReplicaID(id) {
		return item{}, fleet.Errorf(fleet.Invalid, "%.80q is no replica", name).WithHint("write ID or DEPLOYMENT/ID, as holdfast get replicas shows them")
	}
	r, err := client.Replica(ctx, id)
	if err == nil && qualified && r.Deployment != deployment {
		err = fleet.Errorf(fleet.NotFound, "deployment %s has no replica %s", deployment, id)
	}
	return c.replicaItem(r), err
}

// addReplicaFlags narrows a list of replicas.
func (c *cli) addReplicaFlags(cmd *cobra.Command, in *listing) {
	cmd.Flags().StringVar(&in.deployment, "deployment", "", "of replicas: only of this deployment")
	cmd.Flags().StringVar(&in.node, "node", "", "of replicas: only on this node")
	cmd.Flags().BoolVar(&in.ended, "ended", false, "of replicas: those that have ended too; of deployments: only those, as long as their record is kept")
	complete(cmd, "deployment", c.completeObjects("deployment"))
	complete(cmd, "node", c.completeObjects("node"))
}

// deleteReplicas ends replicas, DEPLOYMENT/ID each. Nothing is waited for: what comes is another
// replica.
func (c *cli) deleteReplicas(ctx context.Context, names []string, f *mutationFlags) error {
	if f.ifMatch != "" {
		return &usageError{fmt.Errorf("a replica has no ETag: --if-match is for what is declared")}
	}
	if len(names) > 1 && f.key != "" {
		return &usageError{fmt.Errorf("--idempotency-key is for a single replica")}
	}
	for _, name := range names {
		deployment, id, qualified := strings.Cut(name, "/")
		if !qualified || !fleet.ValidReplicaID(id) {
			return &usageError{fmt.Errorf("%q is no replica: write DEPLOYMENT/ID", name)}
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
	return ", another takes its place"
}
