// Package replicas keeps a node's replicas as its region's set says: it fetches the set, starts and
// stops what differs, probes what runs, and reports what changed.
//
//	region ──set (era.version)──▶ follow ─▶ take ─▶ one worker per replica ─▶ Driver: process | docker
//	   ▲                                              │    ▲
//	   └──── Next: transitions, complete after each ◀─┘    └── prober: one goroutine for all
//	         new stream
//
// A worker does one thing after the other: prepare (definition by hash, image) ─▶ start (few at a
// time) ─▶ running ─▶ stop, or an exit. What to do next is decide.Replica's, what probes mean
// decide.Probe's.
//
// Who owns which truth: the region which replicas there are to be, the drivers what runs, the store
// what the node remembers (replicas with their ports, restarts and health; the newest set; how far
// output was sent). All times are of CLOCK_BOOTTIME, so that a step of the clock condemns nothing.
//
// Failures:
//   - the set cannot be fetched, is garbled or older than one that was taken: nothing changes.
//   - the region is away: what is known runs on and is probed; what exits is started again here,
//     after a pause that grows.
//   - the agent is killed: replicas run on; the next agent finds them by their drivers, and what
//     they were by its store, with their ports, restarts and health.
//   - a guardian is killed: its replica dies with it and is reported as exited.
//   - the store is lost: what runs and nobody remembers is left alone until a set was read whole. It is
//     started anew where the set has it, ended where the set says so, and else runs on and is told.
//   - an engine is away or hangs: its own replicas wait for it, and no others. None of them is said to have
//     ended while it may run (known.Asked).
//   - the machine restarts: every replica is reported as exited.
//
// Nothing of a replica that is in the set no more stays: its process, its directory and its row go
// once the last of its output was sent.
package replicas
