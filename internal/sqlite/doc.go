// Package sqlite is a node's durable memory: one file, one writer.
//
// It owns the truth about what the node holds: for each instance the slots staged, current and previous, the
// high-water mark, and tombstones; the node's role and highest epoch; and the bodies, named by hash and shared
// between slots. The runtime owns what runs, and config.json is a projection of a current slot.
//
//	            Stage            Promote                      Promote of the next
//	accepted ──────────▶ staged ─────────▶ current ──────────▶ previous ──▶ collected
//	    │                   │
//	    │ Accept raises     └─ Unstage (start failed): the high-water mark stays
//	    ▼
//	high-water mark (only rises)
//
// A body arrives in chunks of at most 1 MiB. Each is one transaction, together with the running SHA-256 state,
// so a download continues after kill -9. A body that is one chunk, and came whole, is stored in the transaction
// of its slot instead. A body belongs to the slots that refer to it, to the names whose high-water mark has its
// hash, and to those that it is set aside for (fetched for a later switch, and not accepted). Any other body
// loses its name in one statement and is then removed in limited steps. A batch overwrites a small body that it
// leaves unreferenced (batch.go).
//
// Every commit is durable when it returns (WAL, synchronous=FULL). Stage, Promote and Renumber compare the
// epoch and role in the same transaction: a node that has learned of a higher epoch commits nothing.
package sqlite
