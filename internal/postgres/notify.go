package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// DrainAsked is sent to the server of a connection, like the events that end one.
const DrainAsked fleet.ConnectionEvent = "drain_asked"

// LinkChannel is where the servers of the link hear of what others did.
const LinkChannel = "holdfast_link"

// TellLink hurries the server that holds a connection; it looks by itself too.
func TellLink(ctx context.Context, q *db.Queries, id fleet.ConnectionID, event fleet.ConnectionEvent) error {
	return q.TellLink(ctx, string(id)+" "+string(event))
}

// SiteChanged is sent to the servers of the link, with the site's name in place of a
// connection's id, when its description for nodes has changed.
const SiteChanged fleet.ConnectionEvent = "site_changed"

// TellSite tells the servers of the link that the description of a site has changed.
func TellSite(ctx context.Context, q *db.Queries, site string) error {
	return TellLink(ctx, q, fleet.ConnectionID(site), SiteChanged)
}
