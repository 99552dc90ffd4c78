package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// These begin the notifications on linkChannel about a node, with a number after its name; ids of
// connections have no blank in them either.
const (
	WantedPrefix = "wanted "
	SetPrefix    = "replicas "
	ReportPrefix = "report "
)

// WantNode records that a node has tasks, or is about to, and notifies the server with its stream.
func (s *Store) WantNode(ctx context.Context, node fleet.NodeName) error {
	return s.Q.WantNode(ctx, string(node))
}

// WantedNodes gives the nodes that were wanted within a time, with the number of the last one.
func (s *Store) WantedNodes(ctx context.Context, within time.Duration) (map[fleet.NodeName]int64, error) {
	rows, err := s.Q.WantedNodes(ctx, within.Seconds())
	out := make(map[fleet.NodeName]int64, len(rows))
	for _, r := range rows {
		out[fleet.NodeName(r.Node)] = r.Number
	}
	return out, err
}

// WantedNode gives the number of one node, 0 when it was not wanted within a time.
func (s *Store) WantedNode(ctx context.Context, node fleet.NodeName, within time.Duration) (int64, error) {
	number, err := s.Q.WantedNode(ctx, db.WantedNodeParams{Node: string(node), Seconds: within.Seconds()})
	if NoRows(err) {
		return 0, nil
	}
	return number, err
}

// NumberedOf parses a notification about a node.
func NumberedOf(payload, prefix string) (node fleet.NodeName, number int64, ok bool) {
	rest, ok := strings.CutPrefix(payload, prefix)
	if !ok {
		return "", 0, false
	}
	name, count, ok := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(count, 10, 64)
	return fleet.NodeName(name), number, ok && err == nil
}
