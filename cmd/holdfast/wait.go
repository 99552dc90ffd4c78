package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const waitLong = `Wait until operations end, and exit with a code that tells how they ended.

For an instance or a deployment it is the newest operation. --timeout limits the wait; every operation
ends by itself at its deadline.`

func (c *cli) newWaitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "wait OPERATION|SITE/NAME|deployment/NAME...", Short: "Wait until operations end", Long: waitLong, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeWaitable,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.connect()
			if err != nil {
				return err
			}
			v, errs := view{single: len(args) == 1}, []error(nil)
			for _, arg := range args {
				op, err := c.waitFor(cmd.Context(), client, arg)
				if err != nil {
					errs = append(errs, err)
				}
				if op.ID != "" {
					v.items = append(v.items, c.operationItem(op))
				}
			}
			if c.flags.output != formatTable && len(v.items) == len(args) {
				if err := c.print(v); err != nil {
					return err
				}
			}
			return c.reportAll(errs)
		},
	}
}

func (c *cli) waitFor(ctx context.Context, client *api.Client, arg string) (api.Operation, error) {
	if fleet.ValidID(arg) {
		op, err := client.Operation(ctx, arg, 0)
		if err != nil {
			return op, err
		}
		return c.await(ctx, client, op)
	}
	key, err := writerKey(arg, "")
	if err != nil {
		return api.Operation{}, err
	}
	op, err := newestOperation(ctx, client, key)
	if err != nil {
		return op, err
	}
	return c.await(ctx, client, op)
}

func newestOperation(ctx context.Context, client *api.Client, key fleet.ObjectKey) (api.Operation, error) {
	q := api.OperationQuery{Site: key.Scope, Instance: key.Name, Page: api.Page{Limit: 1}}
	if key.Kind == fleet.KindDeployment {
		q = api.OperationQuery{Deployment: key.Name, Page: q.Page}
	}
	list, err := client.Operations(ctx, q)
	if err != nil {
		return api.Operation{}, err
	}
	for _, op := range list.Items {
		if op.Site == q.Site && op.Instance == q.Instance && op.Deployment == q.Deployment {
			return op, nil
		}
	}
	return api.Operation{}, fleet.Errorf(fleet.NotFound, "%s has no operation", key).
		WithHint("holdfast get " + string(key.Kind) + " " + subject(key))
}
