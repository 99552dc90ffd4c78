package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

var operationHeader = []string{"ID", "KIND", "SUBJECT", "STATE", "REASON", "REVISION", "BY", "CREATED", "ENDED"}

func (c *cli) operationItem(op api.Operation) item {
	of := op.Site
	if op.Instance != "" {
		of += "/" + op.Instance
	}
	if op.Node != "" {
		of = "node/" + op.Node
	}
	if op.Fleet != "" {
		of = "fleet/" + op.Fleet
	}
	if op.Deployment != "" {
		of = deploymentPrefix + op.Deployment
	}
	if op.Module != "" {
		of = "module/" + op.Module
	}
	if op.Holder != "" {
		of = op.Holder
	}
	if op.Region != "" {
		of = "region/" + op.Region
	}
	return item{name: "operation/" + op.ID, value: op, cells: []string{
		op.ID, op.Kind, of, string(op.State), op.Reason, number(op.Revision), op.RequestedBy,
		c.ago(op.CreatedAt), c.agoOf(op.EndedAt),
	}}
}

// fewOperations limits what get shows of a history that only grows.
const fewOperations = 50

func listOperations(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
	if in.limit == 0 {
		in.limit = fewOperations
	}
	return c.listOperationsOf(ctx, client, api.OperationQuery{Site: in.site}, in.limit)
}

func (c *cli) listOperationsOf(ctx context.Context, client *api.Client, q api.OperationQuery, limit int) ([]item, string, error) {
	ops, next, err := collect(limit, func(p api.Page) (api.List[api.Operation], error) {
		q.Page, q.Project = p, c.flags.project
		return client.Operations(ctx, q)
	})
	var items []item
	for _, op := range ops {
		items = append(items, c.operationItem(op))
	}
	return items, next, err
}

func oneOperation(ctx context.Context, c *cli, client *api.Client, id string) (item, error) {
	op, err := client.Operation(ctx, id, 0)
	return c.operationItem(op), err
}

func (c *cli) newOperationsCommand() *cobra.Command {
	return newGroup("operations", "Requested operations and their results",
		c.newOperationsListCommand(), c.newOperationsGetCommand(), c.newOperationsCancelCommand())
}

func (c *cli) newOperationsListCommand() *cobra.Command {
	var q api.OperationQuery
	var instance string
	var w watchFlags
	cmd := &cobra.Command{Use: "list [--instance SITE/NAME]", Short: "List operations, newest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&q.Site, "site", "", "only for this site")
	cmd.Flags().StringVar(&instance, "instance", "", "only for this instance, SITE/NAME")
	cmd.Flags().StringVar(&q.Node, "node", "", "only comparisons of this node")
	cmd.Flags().StringVar(&q.Fleet, "fleet", "", "only for this fleet change")
	cmd.Flags().StringVar(&q.Deployment, "deployment", "", "only for this deployment")
	cmd.Flags().StringVar(&q.State, "state", "", "only in this state")
	complete(cmd, "site", c.completeObjects("site"))
	complete(cmd, "instance", c.completeInstances)
	complete(cmd, "node", c.completeObjects("node"))
	complete(cmd, "fleet", c.completeObjects("fleet"))
	complete(cmd, "deployment", c.completeObjects("deployment"))
	complete(cmd, "state", fixed(operationStates()...))
	w.add(cmd, fewOperations)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if instance != "" {
			key, err := instanceKey(instance, q.Site)
			if err != nil {
				return err
			}
			q.Site, q.Instance = key.Scope, key.Name
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			items, next, err := c.listOperationsOf(ctx, client, q, w.limit)
			return view{header: operationHeader, items: items, next: next}, err
		})
	}
	return cmd
}

func (c *cli) newOperationsGetCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show an operation", Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeOperations,
	}
	w.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			it, err := oneOperation(ctx, c, client, args[0])
			return single(operationHeader, it), err
		})
	}
	return cmd
}

func (c *cli) newOperationsCancelCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel an operation; it may still end in another way", Args: cobra.ExactArgs(1),
		ValidArgsFunction: c.completeOperations,
	}
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "key that makes a repeated request the same change (default random)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.connect()
		if err != nil {
			return err
		}
		accepted, err := client.CancelOperation(cmd.Context(), args[0], f.mutation())
		if err != nil {
			return err
		}
		op := api.Operation{ID: args[0]}
		if accepted.Operation != nil {
			op = *accepted.Operation
		}
		return c.print(single(operationHeader, c.operationItem(op)))
	}
	return cmd
}
