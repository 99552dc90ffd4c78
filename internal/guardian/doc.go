// Package guardian runs the command of an instance under its own small process, the guardian, so that instances
// outlive an agent. It has two halves: Main is the body of the guardian process, Runtime is how an agent
// starts, finds, signals and stops guardians. Linux only.
//
//	agent ──Start──▶ lock ─▶ spec.json ─▶ spawn (setsid, inherits the lock)
//	                                        │
//	     ┌─ ready pipe ◀── starting ◀───────┘   kills what a dead guardian left first
//	     │                  │   │ exits early
//	     ▼       lived long │   └────────────▶ stopping ─▶ ended
//	   Status               ▼                     ▲
//	                     running ──stop, SIGTERM──┤
//	               exits │    ▲ back-off over     │
//	                     ▼    │                   │
//	                     waiting ─────────────────┘
//	                        ▲ the lease was renewed in time: from stopping, once nothing is left
//
// Who owns which truth: the lock on DIR/guardian.lock shows whether a guardian of that name lives; the kernel
// drops it with the process. state.json names the guardian and what it started; it is valid only within one
// boot (it has the boot id), so it is renamed into place but not synced. spec.json is what the agent requested.
// Nothing here reads the node's store.
//
// The lock is an open-file-description lock: the agent takes it before it writes spec.json and passes it to the
// guardian, so racing starts never overwrite each other's spec, and any process can check it without taking it.
//
// These belong to an instance: the process group of the command, every descendant of the guardian (it is a
// child subreaper, so orphans return to it), and, once the guardian is dead, every process with the directory's
// HOLDFAST_GUARDIAN value in its environment. A process is only killed through a pidfd after its start time was
// compared, so a reused pid is never hit. A process escapes if it leaves the group and session and clears its
// environment, and its guardian is then killed by SIGKILL; cgroups would prevent that and are not used.
//
// The lease. ROOT/node.lease has one line: boot id, deadline on CLOCK_BOOTTIME, TTL, whether the graceful stop
// begins late, checksum. It is one file because a renewal then costs one write of some 40 µs for any number of
// guardians: each reads it only when it would have to stop by the last value (200 guardians on a TTL of 15 s
// renewed every second: 0.7 % of a core; without a deadline nothing measurable). The agent sends an earlier
// deadline to them over their sockets. The line is written as a whole and not mapped: a kill cannot cut it, the
// checksum detects any other damage, and a truncated file is an error instead of a SIGBUS. A lease that is
// missing, damaged or of another boot gives no right to run. decide.LeaseEnd defines when what ends.
//
// Guardian and agent (Enforce) both enforce the deadline independently: the guardian stops gracefully, then
// kills; the agent then kills what is still there, guardians included. A guardian checks the lease before every
// event, so one that wakes up late kills first. If a renewal came before the deadline, the guardian restarts
// the instance that it stopped for the lease. Otherwise the guardian ends and the agent starts the instance
// (Ended, lease_ended) with the epoch of that time.
//
// Failures:
//   - agent killed: the guardian keeps running; the next agent finds it by List.
//   - agent killed, or the caller of Start cut off, before the start has its result: the start goes on under the
//     lease; Started waits for its result.
//   - guardian killed: the command dies with it (parent-death signal); the next Start or Stop of the
//     name kills its other processes, and List reports it as dead.
//   - guardian hung: List reports it; Stop kills it and then everything of it.
//   - command exits: restarted after a back-off, once nothing of it is left.
//   - command exits within Run.StartSeconds of its first start: stopped for good, and Start
//     returns apply_failed.
//   - disk full: output is lost (counted), the command is never blocked.
//   - lease ends while agent or guardian is paused or dead: the other ends the instance. With both
//     paused it keeps running, and the first that wakes kills it.
//   - lease file deleted or damaged: the agent ends everything within a second.
package guardian
