// Package node is the inner half of a node's agent: it accepts notifies, fetches and applies revisions, keeps
// them running, and reports to the region what the node holds.
//
//	notify ─▶ accept ─▶ fetch ─▶ stage ─▶ start ─▶ switch ─▶ reply      (active)
//	            │         │                  │         │
//	          refused   resumes,          fails:    epoch or lease moved:
//	          (counted) verifies         previous   previous revision
//	                                     revision   is put back
//	notify ─▶ accept ─▶ fetch ─▶ commit ─▶ reply                        (standby)
//
// Many deliveries travel together (batch.go, bulk.go; also in a comparison): one stream of bodies, one
// transaction, and each succeeds or fails on its own. Only quiet pieces are switched this way. A piece with
// something to start or stop, or whose name has another worker, goes through Apply afterwards, with its body
// already in the store.
//
// Who owns which truth: sqlite which revisions are held, and in which slot; the runtime what runs. config.json
// is derived from the store. The node's right (role, epoch) is in the store and compared in each commit; before
// each start and switch the agent asks MayRun whether the node holds the lease. Only the lease makes a node
// active (tenure, tenancy.go): a notify for an active node is stale on a node without the lease.
//
// Each name has one worker (lanes.go). A newer revision cancels an older one of its name, which restores the
// previous revision and answers stale; the same revision joins the worker.
//
// One function makes reality match the store (settleOne): at start for every name, after a failed switch, when
// the role or the lease changes, and on a schedule. It ends a half-done switch: forward if the staged revision
// runs, or has nothing to run, else back.
//
// Failures:
//   - killed at any point: Recover settles; the redelivered notify is already done or is applied.
//   - start fails: the previous revision runs again, the number stays as the high-water mark, the error
//     is apply_failed.
//   - connection breaks or stalls: the fetch resumes from the last committed chunk.
//   - power cut: what the store committed is kept; a damaged config.json is derived again before
//     anything starts with it.
//   - wrong bytes: hash_mismatch, the staging is discarded, nothing is switched.
//   - region unreachable: instances keep running; started, reports and logs are sent later. They also
//     wait while the worker cannot start: a node that reports takes deliveries.
//   - a second process on the directory: it is refused before it changes anything.
//   - something runs without a row: it is reported and kept, until a delivery of its name adopts (same
//     content) or replaces it. On a node that may not run instances, it is stopped.
package node
