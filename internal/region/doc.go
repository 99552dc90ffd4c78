// Package region wires a region together: the server process, the node process, and what both `holdfast` and
// temporal-dev share. It has no business rules; each file connects one pair of packages.
//
//	server: store ─ api ─ worker(queue holdfast) ─ relay(outbox) ─ listener ─ heartbeat
//	node:   agent(store, runtime, reports) ─ worker(queue node.<node>)
package region
