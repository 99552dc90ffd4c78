package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// newNodeRotateKeyCommand makes a node change its key.
func (c *cli) newNodeRotateKeyCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "rotate-key NODE", Short: "Change a node's key", Args: cobra.ExactArgs(1),
		Long: `Make a node change its key. The node creates the new one itself, at its next report. The old one is
void once the new one was used. Deliveries continue. If a key was stolen, revoke it instead:
holdfast node revoke.`,
		Example:           "  holdfast node rotate-key plant-1-a --timeout 2m",
		ValidArgsFunction: c.completeObjects("node"),
	}
	f.addAsk(cmd)
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until the node uses its new key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := nodeKey(args[0]); err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		n, err := client.RotateNodeKey(cmd.Context(), args[0], f.mutation())
		if err == nil && f.wait && !f.dryRun {
			n, err = c.awaitKey(cmd.Context(), client, n)
		}
		if err != nil {
			return err
		}
		return c.print(single(nodeHeader, c.nodeItem(n)))
	}
	return cmd
}

// awaitKey polls the node until its key is newer than the request. It retries failed reads for as long as those of
// an operation.
func (c *cli) awaitKey(ctx context.Context, client *api.Client, asked api.Node) (api.Node, error) {
	heard := c.now()
	for n := asked; ; {
		switch {
		case n.Key == nil:
			return n, fleet.Errorf(fleet.IllegalState, "node %s was revoked", n.Name)
		case n.Key.Rotation == "":
			return n, nil
		}
		err := pause.For(ctx, c.poll)
		if err == nil {
			var next api.Node
			if next, err = client.Node(ctx, asked.Name); err == nil {
				n, heard = next, c.now()
			}
		}
		if ctx.Err() != nil || err != nil && (exitCodeOf(err) != exitUnreachable || c.now().Sub(heard) > patience) {
			return n, stillRotating(n, err)
		}
	}
}

// stillRotating adds to the error of an interrupted wait that the rotation continues.
func stillRotating(n api.Node, err error) error {
	e := &fleet.Error{Kind: fleet.KindOf(err), Message: err.Error(), Hint: "the change continues: holdfast get node " + n.Name, Err: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind, e.Message = "timeout", fmt.Sprintf("timed out waiting for the new key of node %s, which is %s", n.Name, n.Key.Rotation)
		e.Hint = "is the node running, and of this version? " + e.Hint
	case errors.Is(err, context.Canceled):
		e.Kind, e.Message = "interrupted", "stopped waiting for the new key of node "+n.Name
	}
	return e
}
