package main

import "github.com/spf13/cobra"

// newNodeRevokeCommand takes a node's key back.
func (c *cli) newNodeRevokeCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "revoke NODE", Short: "Take a node's key back", Args: cobra.ExactArgs(1),
		Long: `Take a node's key back: for a machine that was lost, or a key that was seen. Its stream and
its polls end, its tokens open nothing any more, and it gets no work.

The instances of a pair's active move to the peer: region and peer refuse its votes from then on,
so its lease ends within a heartbeat timeout, whatever onIsolation says. Without a peer that is up
they stop. A site's only node goes on running what it runs, as with the region away: stop the
machine. A node comes back by enrolling anew, with a new join token.`,
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
