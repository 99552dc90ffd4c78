// Package link is the server side of the link: where providers, including nodes, register and stay connected.
// docs/link.md explains it.
//
// Postgres owns what a connection is: its row says who registered, what for, and how that
// ended. Modules, executors and module namespaces are read from the live rows, so ending a row
// takes all of it away. The server that holds a stream owns what is quick: when it was heard,
// what it is sent. A state moves only by fleet.ConnectionState.Next, in memory by
// compare-and-set, in Postgres by an UPDATE that names the states it leaves.
//
//	Register ─▶ row Registered ─▶ Connect ─▶ row Active ─▶ heartbeats, reports, drain
//	                                                └─ end(event) ─▶ stream closed, row ended
//
// Every end of a connection goes through end or endedElsewhere, once. Changes of a row by other servers (takeover,
// drain, revocation, a sweep) arrive as a notification, or at the latest when the server next compares its
// connections with its rows.
package link
