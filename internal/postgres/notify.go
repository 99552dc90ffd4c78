package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// DrainAsked is sent to the server of a connection, like the events that end one.
const DrainAsked fleet.ConnectionEvent = "drain_asked"

// linkChannel is where the servers of the link hear of what others did.
const linkChannel = "holdfast_link"

// tellLink hurries the server that holds a connection; it looks by itself too.
func tellLink(ctx context.Context, q *db.Queries, id fleet.ConnectionID, event fleet.ConnectionEvent) error {
	return failed("tell the link", q.TellLink(ctx, string(id)+" "+string(event)))
}

// SiteChanged is sent to the servers of the link, with the site's name in place of a
// connection's id, when its description for nodes has changed.
const SiteChanged fleet.ConnectionEvent = "site_changed"

func tellSite(ctx context.Context, q *db.Queries, site string) error {
	return tellLink(ctx, q, fleet.ConnectionID(site), SiteChanged)
}
