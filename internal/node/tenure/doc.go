// Package tenure is a node's part in its site's lease: its own vote, and its standing for the
// lease. The protocol is internal/lease; this package gives it a file, clocks and wires.
//
//	peer ──Vote──▶ ┌────────┐ ──Vote──▶ peer, region (goroutines with deadlines)
//	site ────────▶ │  loop  │ ◀─answers─┘
//	ticks ───────▶ └────────┘
//	                   │ what should be (holding? epoch, until), newest only
//	                   ▼
//	                 hand ──▶ guardians' deadline, then MayRun, then role and epoch, then settle
//
// Who owns which truth: votes.json what this node promised and may go on holding, site.json what
// the region last told of the site, the guardians until when instances run. The loop alone has
// voter and candidate; it persists before it answers or sends, and waits for nobody. The hand
// alone tells guardians and agent, which may take long, and is told the newest state, so that a
// renewal never waits behind a stop.
//
// Failures:
//   - no site.json and no region: it holds nothing and grants nothing.
//   - votes cannot be written: nothing is answered or sent of what was not, and it votes again
//     from what the disk says.
//   - the loop or the process stands still: guardians and MayRun keep the last deadline.
//   - a call hangs or its connection is half open: it ends with its deadline, and the next one
//     dials anew.
package tenure
