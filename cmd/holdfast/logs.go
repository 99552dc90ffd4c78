package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// logFlags select the output to show.
type logFlags struct {
	site, node, replica string
	after               int64
	follow, raw         bool
}

func (c *cli) newLogsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "logs SITE/NAME|deployment/NAME", Short: "Show the output of an instance, or of the replicas of a deployment", Args: cobra.ExactArgs(1),
		Example:           "  holdfast logs plant-1/press-7\n  holdfast logs deployment/web --follow\n  holdfast logs deployment/web --replica 0af3c21b9d44",
		ValidArgsFunction: c.completeWriters,
	}
	cmd.Flags().StringVar(&f.node, "node", "", "only from this node")
	cmd.Flags().StringVar(&f.replica, "replica", "", "for a deployment: only from this replica, live or ended")
	cmd.Flags().Int64Var(&f.after, "after", 0, "only after this offset (with --node or --replica)")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "keep printing new output, from any node")
	cmd.Flags().BoolVar(&f.raw, "raw", false, "also write control characters unchanged to a terminal, which lets the program control it")
	c.addSiteFlag(cmd, &f.site)
	complete(cmd, "node", c.completeObjects("node"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if name, is := strings.CutPrefix(args[0], deploymentPrefix); is && f.site == "" {
			return c.deploymentLogs(cmd.Context(), name, f)
		}
		if f.replica != "" {
			return &usageError{fmt.Errorf("--replica works only for deployments: use logs deployment/NAME --replica ID")}
		}
		key, err := instanceKey(args[0], f.site)
		if err != nil {
			return err
		}
		if f.after != 0 && f.node == "" {
			return &usageError{fmt.Errorf("--after needs --node: offsets are per node")}
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		l := &logReader{cli: c, client: client, key: key, out: c.programs(f.raw), offsets: map[string]int64{f.node: f.after}}
		return l.run(cmd.Context(), f)
	}
	return cmd
}

// completeWriters offers instances and deployments.
func (c *cli) completeWriters(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	words, directive := c.completeInstances(cmd, args, prefix)
	return append(words, c.prefixedDeployments(cmd.Context(), prefix)...), directive
}

// logReader reads the output of an instance per node, because offsets are per node and an instance moves when its
// site fails over.
type logReader struct {
	*cli
	client  *api.Client
	key     fleet.ObjectKey
	out     io.Writer
	offsets map[string]int64 // end of what was written, per node
	last    string           // the node that wrote last
	wrote   bool
}

func (l *logReader) run(ctx context.Context, f logFlags) error {
	nodes, err := l.nodes(ctx, f.node)
	if err != nil {
		return err
	}
	read := func(ctx context.Context) (view, error) { return view{}, l.round(ctx, nodes) }
	_, err = read(ctx)
	if err == nil && !l.wrote {
		l.nothing(l.silence(ctx, f))
	}
	for f.follow && err == nil {
		_, err = l.fetchAgain(ctx, read)
	}
	if f.follow && err != nil {
		return endOfWatch(ctx, err)
	}
	return err
}

// silence says why no output was written.
func (l *logReader) silence(ctx context.Context, f logFlags) string {
	name := l.key.Scope + "/" + l.key.Name
	if f.after > 0 {
		return fmt.Sprintf("%s wrote nothing on %s after offset %d", name, f.node, f.after)
	}
	var spec fleet.InstanceSpec
	o, _, err := l.client.Object(ctx, l.key)
	if err == nil && json.Unmarshal(o.Spec, &spec) == nil && spec.Run == nil {
		return name + " wrote nothing: it has no run section, so its nodes hold its config and run no command"
	}
	return name + " wrote nothing"
}

// nodes are the site's nodes that can run the instance.
func (l *logReader) nodes(ctx context.Context, only string) ([]string, error) {
	if only != "" {
		return []string{only}, nil
	}
	o, _, err := l.client.Object(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: l.key.Scope})
	if err != nil {
		return nil, err
	}
	var spec fleet.SiteSpec
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return nil, fmt.Errorf("read the nodes of site %s: %w", l.key.Scope, err)
	}
	var nodes []string
	for _, n := range spec.Nodes {
		if n.Role != fleet.RoleWorker {
			nodes = append(nodes, string(n.Name))
		}
	}
	return nodes, nil
}

// round writes the new output of each node.
func (l *logReader) round(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		for {
			list, err := l.client.Logs(ctx, l.key, api.LogQuery{Node: node, After: l.offsets[node]})
			if err != nil {
				return err
			}
			moved, err := l.write(node, list.Items)
			if err != nil {
				return err
			}
			if !moved {
				break
			}
		}
	}
	return nil
}

// write prints chunks, without what was already printed.
func (l *logReader) write(node string, chunks []api.LogChunk) (bool, error) {
	moved := false
	for _, chunk := range chunks {
		data, err := chunk.Bytes()
		if err != nil {
			return moved, err
		}
		end := chunk.Offset + int64(len(data))
		seen := max(l.offsets[node]-chunk.Offset, 0)
		if chunk.Node != node || end <= l.offsets[node] {
			continue
		}
		l.offsets[node], moved, l.wrote = end, true, true
		if err := l.writeChunk(node, chunk.Offset+seen, data[seen:]); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

func (l *logReader) writeChunk(node string, offset int64, data []byte) error {
	if l.flags.output == formatJSON || l.flags.output == formatYAML {
		chunk := api.LogChunk{Node: node, Offset: offset, Data: base64.StdEncoding.EncodeToString(data)}
		return writeLine(l.stdout, chunk) // a line of JSON is YAML too
	}
	if l.last != "" && l.last != node {
		heading(l.out, "\n==> %s <==\n", clean(node))
	}
	l.last = node
	if _, err := l.out.Write(data); err != nil {
		return fmt.Errorf("write logs: %w", err)
	}
	return nil
}
