package reconcile

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// SetVersion is the number of a site's expected set.
func (s *Store) SetVersion(ctx context.Context, site fleet.SiteName) (fleet.SetVersion, error) {
	r, err := s.Q.SetVersionOf(ctx, string(site))
	return fleet.SetVersion{Era: r.Era, Number: r.Version}, err
}

// ExpectedSet is what the nodes of a site should hold (N33, N79). Its version is read
// first: concurrent changes make the set newer than its version, never older.
func (s *Store) ExpectedSet(ctx context.Context, site fleet.SiteName) (fleet.ExpectedSet, error) {
	version, err := s.SetVersion(ctx, site)
	if err != nil {
		return fleet.ExpectedSet{}, err
	}
	rows, err := s.Q.ExpectedSet(ctx, string(site))
	out := fleet.ExpectedSet{Version: version, Count: len(rows), Instances: make([]fleet.ExpectedInstance, len(rows))}
	for i, r := range rows {
		out.Instances[i] = fleet.ExpectedInstance{
			Instance: fleet.InstanceName(r.Name), RevisionHash: postgres.HashText(r.BodyHash), Era: r.Era, Revision: r.Revision,
			RunHash: postgres.HashText(r.RunHash), Enabled: r.Enabled, InFlight: r.InFlight,
		}
	}
	return out, err
}

// SeeStops gives of some names of a site the deletes and disables that are deployed or desired.
func (s *Store) SeeStops(ctx context.Context, site fleet.SiteName, names []fleet.InstanceName) ([]fleet.StopSeen, error) {
	p := db.SeeStopsParams{Site: string(site), Names: make([]string, len(names))}
	for i, name := range names {
		p.Names[i] = string(name)
	}
	rows, err := s.Q.SeeStops(ctx, p)
	out := make([]fleet.StopSeen, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = fleet.StopSeen{
			InstanceRevision: fleet.InstanceRevision{Instance: fleet.InstanceName(r.Revision.Name), Revision: deliveries.RevisionOf(&r.Revision)},
			Deployed:         r.Deployed, Staged: r.Staged, Awaited: r.Awaited, Owed: r.Owed,
		}
	}
	return out, err
}

// TicketRequest asks for ways to fetch what is deployed of some instances, one token each.
type TicketRequest struct {
	Pass  Pass
	Names []fleet.InstanceName
	// Tokens are hashes, one for each name.
	Tokens [][]byte
	Life   time.Duration
}

// Tickets are the notifies for them, without tokens, and the key to seal those to. What is
// under way, or not deployed any more, has none. Order keeps the place of each in Names.
type Tickets struct {
	Commands   []fleet.RefreshDeploymentCommand
	Order      []int
	SealingKey []byte
}

// MakeTickets writes snapshot tickets for one comparison (N84), in five statements however
// many they are.
func (s *Store) MakeTickets(ctx context.Context, in TicketRequest) (Tickets, error) {
	var out Tickets
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = Tickets{}
		n, err := q.GetNode(ctx, string(in.Pass.Node))
		if err != nil {
			return err
		}
		at, err := nodes.On(s.Store).Welcome(ctx, q, in.Pass.Node)
		if err != nil {
			return err
		}
		made, places, err := insertTickets(ctx, q, in)
		if err != nil || len(made) == 0 {
			return err
		}
		out.SealingKey, out.Order = n.SealingKey, places
		out.Commands, err = ticketCommands(ctx, q, in, made, at)
		return err
	})
	return out, err
}

func insertTickets(ctx context.Context, q *db.Queries, in TicketRequest) (made []db.InsertTicketsRow, places []int, err error) {
	p := db.InsertTicketsParams{Node: string(in.Pass.Node), Site: string(in.Pass.Site), Seconds: in.Life.Seconds()}
	placeOf := map[string]int{}
	for i, name := range in.Names {
		id, err := postgres.NewID()
		if err != nil {
			return nil, nil, err
		}
		p.Ids, p.Names, placeOf[id] = append(p.Ids, id), append(p.Names, string(name)), i
	}
	if made, err = q.InsertTickets(ctx, p); err != nil {
		return nil, nil, err
	}
	tokens := db.InsertFetchTokensParams{Node: p.Node, Seconds: p.Seconds}
	for _, m := range made {
		place := placeOf[m.ID]
		places = append(places, place)
		tokens.Ids, tokens.Hashes = append(tokens.Ids, m.ID), append(tokens.Hashes, in.Tokens[place])
	}
	return made, places, q.InsertFetchTokens(ctx, tokens)
}

func ticketCommands(ctx context.Context, q *db.Queries, in TicketRequest, made []db.InsertTicketsRow, at nodes.Welcome) ([]fleet.RefreshDeploymentCommand, error) {
	p := db.GetRevisionsParams{Site: string(in.Pass.Site)}
	for _, m := range made {
		p.Names, p.Revisions = append(p.Names, m.Name), append(p.Revisions, m.Revision)
	}
	rows, err := q.GetRevisions(ctx, p)
	if err != nil {
		return nil, err
	}
	byName := map[string]*db.Revision{}
	for i := range rows {
		byName[rows[i].Name] = &rows[i]
	}
	out := make([]fleet.RefreshDeploymentCommand, len(made))
	for i, m := range made {
		r := byName[m.Name]
		out[i] = fleet.RefreshDeploymentCommand{
			DeploymentID: m.ID, Site: in.Pass.Site, Instance: fleet.InstanceName(m.Name), Role: at.Role, Epoch: at.Epoch,
			Revision: deliveries.RevisionOf(r), DeployedBy: r.CreatedBy, Timestamp: time.Now().UTC(),
		}
	}
	return out, nil
}
