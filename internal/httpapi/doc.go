// Package httpapi serves the contract of package api.
//
//	request ─▶ observe (count, log, recover)
//	        ├▶ /api/v1       authenticate ─▶ allow (role, project) ─▶ handler of its noun
//	        └▶ /api/internal fetch token (sealed to one node) or JWT (signed by a node's key)
//
// Package serve is what all handlers stand on, package machines has /api/internal, package plans has plan and
// apply; here are the nouns, and what mounts it all.
//
// It owns no truth: everything is in the store, and a handler keeps nothing but tokens that
// it has just looked up (serve/auth.go). A change is checked, and its config flattened and stored by
// hash, before the transaction that writes it (package declaration); after the commit the
// entity is woken, and a wake that fails is repeated from the outbox.
//
// Errors are *fleet.Error; serve/problem.go turns each kind into application/problem+json once.
// What a caller may not know (internal causes, objects of other projects) is logged or reads
// as missing. Tokens, bodies and query values reach no log, metric, error or event.
//
// Memory: small requests are read at once; larger ones wait for their share of Deps.Flatten
// and of reading, so it is bounded however many are sent together. Configs and artifacts are
// streamed in both directions in chunks of 1 MiB. Each read and write of a body has a
// separate deadline, so that a peer may be slow but may not stall.
package httpapi
