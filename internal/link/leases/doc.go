// Package leases is the region's vote on who is a site's active node (internal/lease,
// docs/lease.md), served to nodes on the link by any number of servers over one database.
//
// Postgres owns the record; a row is written on condition that it still is what the voter
// went by, and is else seen and handled again. Clocks are each server's own: once per tick it
// reads all rows and times how long their counters have been still. A server that starts, or
// whose tick comes late, waits anew.
//
//	Vote ─▶ booth of the site ─▶ lease.Voter.Handle ─▶ changed? ─▶ one conditional UPDATE ─▶ answer
//	                                                    renewal? ─▶ batch, one statement per 200 ms
//	tick ─▶ all rows ─▶ Voter.See, Voter.Tick of each site that is not busy
//
// A booth is held while its own row is written, and none waits for another's.
package leases
