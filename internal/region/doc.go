// Package region wires a region together: the server process, the node process, and what
// both `holdfast` and the laptop region share. It holds no rule; each file connects one
// pair of rooms.
//
//	server: store ─ api ─ worker(queue holdfast) ─ relay(outbox) ─ listener ─ heartbeat
//	node:   agent(store, runtime, reports) ─ worker(queue node.<node>)
package region
