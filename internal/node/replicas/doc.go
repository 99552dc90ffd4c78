// Package replicas keeps a node's replicas as the region's set lists them: it fetches the set, starts and stops
// replicas to match it, probes those that run, and reports changes.
//
//	region ──set (era.version)──▶ follow ─▶ take ─▶ one worker per replica ─▶ Driver: process | docker
//	   ▲                                              │    ▲
//	   └──── Next: transitions, complete after each ◀─┘    └── prober: one goroutine for all
//	         new stream
//
// A worker does one thing at a time: prepare (definition by hash, image) ─▶ start (few at a time) ─▶ running ─▶
// stop, or an exit. decide.Replica decides the next step, decide.Probe what probes mean.
//
// Who owns which truth: the region which replicas should exist, the drivers what runs, the store what the node
// remembers (replicas with their ports, restarts and health; the newest set; the offset up to which output was
// sent). All times are of CLOCK_BOOTTIME, so a change of the wall clock makes nothing late.
//
// Failures:
//   - the set cannot be fetched, is invalid or is older than the current one: nothing changes.
//   - the region is unreachable: known replicas keep running and are probed; the node restarts those
//     that exit, with a growing pause.
//   - the agent is killed: replicas keep running. The next agent finds them through their drivers, and
//     reads their ports, restarts and health from its store.
//   - a guardian is killed: its replica dies with it and is reported as exited.
//   - the store is lost: replicas that the node does not remember keep running until it has read a
//     whole set. It restarts those that should run, ends those that the set ends, and reports the
//     others, which keep running.
//   - an engine is unreachable or hangs: only its own replicas wait for it. The node reports none of
//     them as ended while it may still run (known.Asked).
//   - the machine restarts: every replica is reported as exited.
//
// When a replica is no longer in the set, its process, its directory and its row are removed after the last of
// its output was sent.
package replicas
