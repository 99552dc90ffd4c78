// Package guardian runs the command of an instance under a small process of its own, so
// that instances outlive an agent. It has two halves: Main is the body of the guardian
// process, Runtime is how an agent starts, finds, signals and stops guardians. Linux only.
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
// Who owns which truth: the lock on DIR/guardian.lock says whether a guardian of that name
// lives, and the kernel drops it with the process. state.json says who the guardian is and
// what it started; it matters only within one boot (it carries the boot id), so it is
// renamed into place but not synced. spec.json is what was asked for. Nothing here reads
// the node's store.
//
// The lock is an open-file-description lock: the agent takes it before it writes spec.json
// and hands it down, so racing starts never overwrite each other's spec, and anyone can ask
// whether it is held without taking it.
//
// What belongs to an instance: the process group of the command, every descendant of the
// guardian (it is a child subreaper, so orphans come back to it), and, once the guardian is
// dead, every process that carries the directory's HOLDFAST_GUARDIAN value in its environment.
// A process is only ever killed through a pidfd after its start time was compared, so a reused
// pid is never hit. A process that leaves the group and session and clears its environment,
// and whose guardian is then killed by SIGKILL, escapes; cgroups would close that hole and are
// not used.
//
// The lease. ROOT/node.lease holds one line: boot id, deadline on CLOCK_BOOTTIME, TTL, whether the
// graceful stop begins late, checksum. One file, because a renewal then costs one write of some 40 µs however many
// guardians there are: each reads it only when by what it read last it would have to stop (200
// guardians on a TTL of 15 s renewed every second: 0.7 % of a core; without a deadline nothing
// measurable). A deadline that is drawn nearer is told to them over their sockets. It is a
// write of a whole line and not a mapped word: a kill cannot halve it, the checksum shows
// every other half, and a truncated file is an error instead of a SIGBUS. What is missing,
// garbled or of another boot is no right to run. When what ends is in decide.LeaseEnd.
//
// Guardian and agent (Enforce) both keep the deadline, each without the other: the guardian
// stops gracefully, then kills; the agent then kills, guardian included, what is still there.
// A guardian looks at the lease before every event, so one that wakes up late kills first. An
// instance that was stopped for the lease is started again by its guardian if a renewal came
// before the deadline, else its guardian ends and the agent starts it (Ended, lease_ended)
// with the epoch of then.
//
// Failures:
//   - agent killed: the guardian goes on; the next agent finds it by List.
//   - guardian killed: the command dies with it (parent-death signal); its other processes
//     are killed by the next Start or Stop of the name, and List reports it as dead.
//   - guardian hung: List says so; Stop kills it and then everything of it.
//   - command exits: restarted after a back-off, once nothing of it is left.
//   - command exits within Run.StartSeconds of its first start: stopped for good, and Start
//     returns apply_failed.
//   - disk full: output is lost (counted), the command is never blocked.
//   - lease ends while agent or guardian is paused or dead: the other ends the instance. With
//     both paused it runs on, and is killed by whoever wakes first.
//   - lease file deleted or spoilt: the agent ends everything within a second.
package guardian
