// Package sqlite is a node's durable memory: one file, one writer.
//
// It owns the truth about what the node holds: per instance the slots staged, current and
// previous, the high-water mark, and tombstones; the node's role and highest epoch; and the
// bodies, named by hash and shared between slots. What runs is the runtime's truth, and
// config.json is a projection of a current slot.
//
//	            Stage            Promote                      Promote of the next
//	accepted ──────────▶ staged ─────────▶ current ──────────▶ previous ──▶ collected
//	    │                   │
//	    │ Accept raises     └─ Unstage (start failed): the high-water mark stays
//	    ▼
//	high-water mark (only rises)
//
// A body arrives in chunks of at most 1 MiB. Each is one transaction, together with the
// running SHA-256 state, so that a download goes on where it was after kill -9. A body that
// is one chunk, and came whole, is stored in the transaction of its slot instead. A body
// belongs to the slots that point at it, to the names whose high-water mark has its hash, and
// to those that it is set aside for (fetched for a later switch, and not accepted); any other
// is condemned (it loses its name in one statement) and then removed in bounded steps. A batch
// writes over a small one that it leaves unreferenced (batch.go).
//
// Every commit is durable when it returns (WAL, synchronous=FULL). Stage, Promote and
// Renumber compare the epoch and role in the same transaction: a node that learned of a
// higher epoch meanwhile commits nothing.
package sqlite
