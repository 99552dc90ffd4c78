// Package tenure is a node's part in its site's lease: its own vote, and its candidate for the lease.
// internal/lease has the protocol; this package adds a file, clocks and connections.
//
//	peer ──Vote──▶ ┌────────┐ ──Vote──▶ peer, region (goroutines with deadlines)
//	site ────────▶ │  loop  │ ◀─answers─┘
//	ticks ───────▶ └────────┘
//	                   │ what should be (holding? epoch, until), newest only
//	                   ▼
//	                 hand ──▶ guardians' deadline, then MayRun, then role and epoch, then settle
//
// Who owns which truth: votes.json what this node promised and may keep holding, site.json the region's last
// word about the site, the guardians until when instances run. Only the loop has voter and candidate; it
// persists before it answers or sends, and never blocks. Only the hand calls guardians and agent, which may
// take long. The hand gets only the newest state, so a renewal never waits behind a stop.
//
// Failures:
//   - no site.json and no region: the node holds nothing and grants nothing.
//   - the votes cannot be written: the node answers and sends nothing that is not on disk, and votes
//     again from what the disk has.
//   - the loop or the process stops: guardians and MayRun keep the last deadline.
//   - a call hangs or its connection is half open: it ends with its deadline, and the next call
//     reconnects.
package tenure
