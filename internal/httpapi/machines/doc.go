// Package machines serves what nodes call: /api/internal.
//
//	a node's JWT, signed by its key     ─▶ enrol.go (a join token), machines.go, keys.go, owed.go, replicas.go
//	a token of one delivery or batch    ─▶ fetch.go, batches.go
//	a token of one comparison of a site ─▶ expected.go
//
// Configs and artifacts are streamed, compressed as the node takes them; small ones are kept compressed for the
// next node (packed.go).
package machines
