package deliveries

import (
	"context"
	"maps"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// BatchTokens gives what the region keeps of the tokens of an open batch, else NotFound,
// whatever the token (N91).
func (s *Store) BatchTokens(ctx context.Context, id fleet.BatchID) ([]FetchToken, error) {
	b, err := s.Q.GetBatch(ctx, string(id))
	if err != nil || b.State != batchOpen {
		if err != nil && !postgres.NoRows(err) {
			return nil, err
		}
		return nil, fleet.Errorf(fleet.NotFound, "no batch is open under this id")
	}
	rows, err := s.Q.TokensOf(ctx, string(id))
	out := make([]FetchToken, len(rows))
	for i, r := range rows {
		out[i] = FetchToken{fleet.NodeName(r.Node), r.Hash}
	}
	return out, err
}

// BatchBodies gives those of some bodies that a node needs for the items of a batch which can
// still be fetched, in the order asked for; what it cannot have is left out.
func (s *Store) BatchBodies(ctx context.Context, id fleet.BatchID, node fleet.NodeName, hashes []fleet.Hash,
	emit func(fleet.Hash, []byte) error,
) error {
	rows, err := s.Q.BodiesOfBatch(ctx, db.BodiesOfBatchParams{
		Node: string(node), BatchID: string(id), Open: string(fleet.DeliveryOpen),
	})
	if err != nil {
		return err
	}
	return s.stream(ctx, hashes, rows, emit)
}

// TicketBodies is BatchBodies for what a node holds snapshot tickets for.
func (s *Store) TicketBodies(ctx context.Context, site fleet.SiteName, node fleet.NodeName, hashes []fleet.Hash,
	emit func(fleet.Hash, []byte) error,
) error {
	tickets, err := s.Q.BodiesOfTickets(ctx, db.BodiesOfTicketsParams{Site: string(site), Node: string(node), Hashes: postgres.HashesBytes(hashes)})
	if err != nil {
		return err
	}
	rows := make([]db.BodiesOfBatchRow, len(tickets))
	for i, t := range tickets {
		rows[i] = db.BodiesOfBatchRow(t)
	}
	return s.stream(ctx, hashes, rows, emit)
}

// stream reads bodies in groups, so that it holds one group at a time, each hash once.
func (s *Store) stream(ctx context.Context, hashes []fleet.Hash, may []db.BodiesOfBatchRow, emit func(fleet.Hash, []byte) error) error {
	sizes := map[fleet.Hash]int64{}
	for _, r := range may {
		if r.Size <= fleet.MaxBatchBody {
			sizes[postgres.HashText(r.BodyHash)] = r.Size
		}
	}
	var order []fleet.Hash
	asked := make(map[fleet.Hash]bool, len(hashes))
	for _, h := range hashes {
		if _, is := sizes[h]; is && !asked[h] {
			asked[h] = true
			order = append(order, h)
		}
	}
	for len(order) > 0 {
		n := groupOf(order, func(h fleet.Hash) int { return int(sizes[h]) }, fleet.MaxBatchBody)
		bodies, err := s.bodies(ctx, order[:n])
		if err != nil {
			return err
		}
		for _, h := range order[:n] {
			body, is := bodies[h]
			if !is && sizes[h] > 0 {
				continue // collected since, with what referred to it
			}
			if err := emit(h, body); err != nil {
				return err
			}
		}
		order = order[n:]
	}
	return nil
}

// bodies is WholeBodies, but for what was written just now.
func (s *Store) bodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	kept, rest := s.Recent.Of(hashes)
	if len(rest) == 0 {
		return kept, nil
	}
	read, err := s.WholeBodies(ctx, rest)
	maps.Copy(kept, read)
	return kept, err
}
