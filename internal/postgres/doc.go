// Package postgres is the kernel of the region's store: transactions, locks, the write path, the feed, bodies, operations
// and the outbox. The packages below it are its areas; package store puts them together.
//
// Every write of a declared object goes through Write (objects.go): it locks the object by
// advisory lock before its first write, so that feed order is each object's own order,
// raises the generation when the spec changed, and appends the event. What the system finds
// out by itself (snapshots, owed rows, what nodes hold) lives in separate tables
// (deliveries: claim.go, record.go) and is guarded by the lock on the permanent
// (site, name) row.
//
//	PUT ──▶ objects ─▶ revisions ─▶ operations, outbox        one transaction
//	        entity: Observe ─▶ Claim ─▶ Prepare … Record ─▶ End
//	                              │ deliveries, pending, fetch_tokens
//	                              └──────▶ snapshots, owed, node_held
//
// SQL lives in queries/ (generated into db/) and migrations/; Go here only puts statements
// together. Driver errors become fleet kinds in Failed (errors.go), by code, never by text.
package postgres
