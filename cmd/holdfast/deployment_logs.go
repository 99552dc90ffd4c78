package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) deploymentLogs(ctx context.Context, name string, f logFlags) error {
	if err := fleet.ValidateName("deployment", name); err != nil {
		return &usageError{err}
	}
	id := fleet.ReplicaID(f.replica)
	switch {
	case f.replica != "" && !fleet.ValidReplicaID(f.replica):
		return &usageError{fmt.Errorf("invalid replica %q", f.replica)}
	case f.node != "":
		return &usageError{fmt.Errorf("--node works only for instances: use --replica for a deployment")}
	case f.after != 0 && f.replica == "":
		return &usageError{fmt.Errorf("--after needs --replica: offsets are per replica")}
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	if _, err := client.DeploymentLogs(ctx, name, api.ReplicaLogQuery{Replica: id, After: f.after, Limit: 1}); err != nil {
		return err // report a missing deployment, not missing replicas
	}
	l := c.newReplicaLogReader(client, name, id)
	l.out = c.programs(f.raw)
	if id != "" {
		l.offsets[id] = f.after
	}
	return l.run(ctx, f.follow)
}

func (c *cli) newReplicaLogReader(client *api.Client, name string, only fleet.ReplicaID) *replicaLogReader {
	return &replicaLogReader{cli: c, client: client, name: name, only: only, out: c.programs(false), offsets: map[fleet.ReplicaID]int64{}, ended: map[fleet.ReplicaID]time.Time{}, past: map[fleet.ReplicaID]bool{}}
}

// lastWords is how long output of an ended replica is still read: its node sends output every few seconds, and the
// last of it after the report of its end.
const lastWords = 15 * time.Second

// replicaLogReader reads the output of a deployment per replica, because offsets are per replica. With follow, it
// reads new replicas from their start.
type replicaLogReader struct {
	*cli
	client  *api.Client
	name    string
	only    fleet.ReplicaID // "" for all live ones
	out     io.Writer
	offsets map[fleet.ReplicaID]int64
	ended   map[fleet.ReplicaID]time.Time // when they ended
	past    map[fleet.ReplicaID]bool      // known to have ended
	last    fleet.ReplicaID               // whose output was written last
	wrote   bool
}

func (l *replicaLogReader) run(ctx context.Context, follow bool) error { //nolint:revive // the flag as it was given
	read := func(ctx context.Context) (view, error) { return view{}, l.round(ctx) }
	_, err := read(ctx)
	if err == nil && !l.wrote {
		l.nothing(l.silence())
	}
	for follow && err == nil {
		_, err = l.fetchAgain(ctx, read)
	}
	if follow && err != nil {
		return endOfWatch(ctx, err)
	}
	return err
}

// silence says why no output was written.
func (l *replicaLogReader) silence() string {
	switch {
	case l.only != "" && l.offsets[l.only] > 0:
		return fmt.Sprintf("replica %s of deployment %s wrote nothing after offset %d", l.only, l.name, l.offsets[l.only])
	case l.only != "":
		return fmt.Sprintf("replica %s of deployment %s wrote nothing that has arrived (nodes send output every few seconds)", l.only, l.name)
	case len(l.offsets) == 0:
		return fmt.Sprintf("deployment %s has no replicas; see \"holdfast explain deployment %s\"", l.name, l.name)
	}
	var names []string
	for _, id := range slices.Sorted(maps.Keys(l.offsets)) {
		names = append(names, string(id))
	}
	return fmt.Sprintf("the replicas of deployment %s wrote nothing that has arrived: %s (nodes send output every few seconds)", l.name, strings.Join(names, ", "))
}

// nothing writes to stderr that there is no output.
func (c *cli) nothing(text string) { fmt.Fprintln(c.stderr, clean(text)) }

// round writes the new output of each replica, and for a while that of ended ones.
func (l *replicaLogReader) round(ctx context.Context) error {
	if l.only != "" {
		return l.drain(ctx, l.only)
	}
	live, err := l.live(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(l.offsets)) {
		if slices.Contains(live, id) {
			delete(l.ended, id)
			continue
		}
		if err := l.drain(ctx, id); err != nil && fleet.KindOf(err) != fleet.NotFound { // or its output was removed
			return err
		}
		if _, known := l.ended[id]; !known {
			l.ended[id] = l.now()
		}
		if l.now().Sub(l.ended[id]) >= lastWords {
			delete(l.offsets, id)
			delete(l.ended, id)
		}
	}
	for _, id := range live {
		l.offsets[id] = max(l.offsets[id], 0) // known from now on
		if err := l.drain(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// live are the replicas to read. If none is live at the start, it is the one that ended last, because that shows
// why a program does not start. A replica that starts and ends between two reads is read as an ended one.
func (l *replicaLogReader) live(ctx context.Context) (ids []fleet.ReplicaID, err error) {
	all, err := l.replicas(ctx, api.ReplicaQuery{Deployment: l.name, Ended: true})
	if err != nil {
		return nil, err
	}
	first := len(l.past)+len(l.offsets) == 0
	var ended []api.Replica
	for _, r := range all {
		switch {
		case r.EndedAt == nil:
			ids = append(ids, r.ID)
		case !l.past[r.ID]:
			l.past[r.ID] = true
			ended = append(ended, r)
		}
	}
	slices.SortStableFunc(ended, func(a, b api.Replica) int { return b.Since.Compare(a.Since) })
	if first && len(ids) > 0 {
		ended = nil
	} else if first {
		ended = ended[:min(len(ended), 1)]
	}
	for _, r := range ended {
		l.offsets[r.ID] = max(l.offsets[r.ID], 0) // known from now on
	}
	return ids, nil
}

func (l *replicaLogReader) replicas(ctx context.Context, q api.ReplicaQuery) ([]api.Replica, error) {
	all, _, err := collect(0, func(p api.Page) (api.List[api.Replica], error) {
		q.Page = p
		return l.client.Replicas(ctx, q)
	})
	return all, err
}

func (l *replicaLogReader) drain(ctx context.Context, id fleet.ReplicaID) error {
	for {
		list, err := l.client.DeploymentLogs(ctx, l.name, api.ReplicaLogQuery{Replica: id, After: l.offsets[id]})
		if err != nil {
			return err
		}
		moved := false
		for _, chunk := range list.Items {
			wrote, err := l.write(chunk)
			if err != nil {
				return err
			}
			moved = moved || wrote
		}
		if !moved {
			return nil
		}
	}
}

// write prints the part of a chunk that was not printed before.
func (l *replicaLogReader) write(chunk api.ReplicaLogChunk) (bool, error) {
	data, err := chunk.Bytes()
	if err != nil {
		return false, err
	}
	end := chunk.Offset + int64(len(data))
	if end <= l.offsets[chunk.Replica] {
		return false, nil
	}
	seen := max(l.offsets[chunk.Replica]-chunk.Offset, 0)
	l.wrote = true
	l.offsets[chunk.Replica] = end
	if l.flags.output == formatJSON || l.flags.output == formatYAML {
		chunk.Offset, chunk.Data = chunk.Offset+seen, base64.StdEncoding.EncodeToString(data[seen:])
		return true, writeLine(l.stdout, chunk) // a line of JSON is YAML too
	}
	if l.last != chunk.Replica && l.only == "" {
		gap := ""
		if l.last != "" {
			gap = "\n"
		}
		heading(l.out, "%s==> replica %s on %s <==\n", gap, clean(string(chunk.Replica)), clean(chunk.Node))
	}
	l.last = chunk.Replica
	if _, err := l.out.Write(data[seen:]); err != nil {
		return true, fmt.Errorf("write logs: %w", err)
	}
	return true, nil
}
