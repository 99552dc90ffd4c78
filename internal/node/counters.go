package node

import "sync/atomic"

// Counters count the node's deliveries, for metrics. The zero value is ready.
type Counters struct {
	Applied, Already, StaleRefused, Conflicts atomic.Int64
	FetchedBytes, Resumed, HashMismatch       atomic.Int64
	ApplyFailed, CommandsRefused              atomic.Int64
}

// Snapshot gives every counter by the name of its metric.
func (c *Counters) Snapshot() map[string]int64 {
	return map[string]int64{
		"applied": c.Applied.Load(), "already": c.Already.Load(), "apply_failed": c.ApplyFailed.Load(),
		"stale_refused": c.StaleRefused.Load(), "conflicts": c.Conflicts.Load(),
		"fetched_bytes": c.FetchedBytes.Load(), "resumed": c.Resumed.Load(), "hash_mismatch": c.HashMismatch.Load(),
		"commands_refused": c.CommandsRefused.Load(),
	}
}

// outcome is the counter of a delivery that succeeded.
func (c *Counters) outcome(already bool) *atomic.Int64 { //nolint:revive // it is what is counted
	if already {
		return &c.Already
	}
	return &c.Applied
}
