// Package node is the inner half of a node's agent: it takes notifies, fetches, applies and
// keeps what was applied running, and tells the region what it holds.
//
//	notify ─▶ accept ─▶ fetch ─▶ stage ─▶ start ─▶ switch ─▶ reply      (active)
//	            │         │                  │         │
//	          refused   resumes,          fails:    epoch or lease moved:
//	          (counted) verifies         previous   previous revision
//	                                     revision   is put back
//	notify ─▶ accept ─▶ fetch ─▶ commit ─▶ reply                        (standby)
//
// Many deliveries travel together (batch.go, bulk.go; a comparison's too): one stream of
// bodies, one transaction, and each stands for itself. Only what is quiet is switched so: what
// has something to start or stop, or somebody at work on it, goes through Apply afterwards,
// with its body in the store already.
//
// Who owns which truth: sqlite what is held, and in which slot; the runtime what runs;
// config.json is derived from the store. Which right the node has (role, epoch) is in the
// store and compared in each commit; whether it holds the lease is asked (MayRun) before
// anything is started or switched. Only the lease makes a node active (tenure, tenancy.go): a
// notify as active to a node that does not hold it is stale.
//
// One worker per name (lanes.go). A newer revision cancels an older one of its name, which
// puts the previous revision back and answers stale; the same one joins it.
//
// One function makes reality match the store (settleOne): at start for every name, after a
// failed switch, when the role or the lease changes, and on a schedule. It ends a half-done
// switch: forward if the staged revision is what runs, or has nothing to run, else back.
//
// Failures:
//   - killed anywhere: Recover settles; the redelivered notify is already or is applied.
//   - start fails: the previous revision is running again, the number stays as the
//     high-water mark, the error is apply_failed.
//   - connection breaks or stalls: resumed from the last committed chunk.
//   - power cut: what the store committed is there; a config.json that is torn is derived
//     again before anything starts with it.
//   - wrong bytes: hash_mismatch, the staging is discarded, nothing was switched.
//   - region away: what runs goes on; started, reports and logs stay owed. So they do while
//     the worker cannot start: a node that reports takes deliveries.
//   - a second process on the directory: it is refused before it touches anything.
//   - something runs without a row: it is reported and kept, until a delivery of its name
//     adopts (same content) or replaces it. On a node that may not run, it is stopped.
package node
