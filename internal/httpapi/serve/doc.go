// Package serve is what all handlers of the HTTP API stand on.
//
//	request ─▶ observe (count, log, recover) ─▶ authenticate ─▶ access and query of its endpoint ─▶ handler
//
// It knows no noun. Errors are *fleet.Error; problem.go turns each kind into application/problem+json once.
//
// Memory: what a body takes is reserved as its bytes arrive (memory.go). Each read and write of a body has a
// separate deadline, so that a peer may be slow but may not stall.
package serve
