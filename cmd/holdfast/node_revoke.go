package main

import "github.com/spf13/cobra"

// newNodeRevokeCommand revokes a node's key.
func (c *cli) newNodeRevokeCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "revoke NODE", Short: "Revoke a node's key", Args: cobra.ExactArgs(1),
		Long: `Revoke a node's key: for a machine that was lost, or a key that was exposed. The node's stream and
polls end, its tokens are void, and it gets no work.

The instances of a pair's active move to the peer. Region and peer reject its votes from then on, so
its lease ends within a heartbeat timeout, whatever onIsolation is. Without a running peer they stop.
A site's only node keeps its instances running, as it does without its region: stop the machine. To
bring a node back, enrol it again with a new join token.`,
		Example: "  holdfast node revoke plant-1-a",
	}
	f.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := nodeKey(args[0]); err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		n, err := client.RevokeNode(cmd.Context(), args[0], f.mutation())
		if err != nil {
			return err
		}
		return c.print(single(nodeHeader, c.nodeItem(n)))
	}
	return cmd
}
