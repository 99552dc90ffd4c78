package region

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// Timing is every interval and limit of a region, so that temporal-dev can be faster.
type Timing struct {
	Delivery workflows.DeliveryLimits
	// Purge, Sweep and Collect are the intervals of the schedules PurgePending,
	// SweepOperations and CollectGarbage.
	Purge, Sweep, Collect time.Duration
	// Keep is what CollectGarbage leaves.
	Keep fleet.Retention
	// Nodes is how often what nodes hold is compared with what is deployed. Compare is the time after which a node
	// is compared in full although nothing drifted.
	Nodes, Compare time.Duration
	// Runtime is how often desired and actual deployments are compared, and how often nodes send digests.
	Runtime time.Duration
	// Relay is how old an outbox row is before its wake is repeated: longer than a busy region takes to read it,
	// because repeating a wake that was not lost only costs.
	Relay time.Duration
	// ServerSeen is how often a server reports that it is alive. After three times that its build counts as gone,
	// but never before Stranded.
	ServerSeen, Stranded time.Duration
	// ReadIdle cuts a download that stalls (N96).
	ReadIdle time.Duration
	// Owed is how long a new active tries to get missed deletes and disables from the region before it starts
	// anything.
	Owed time.Duration
	// Report is how often a node reports changes.
	Report time.Duration
	// Failover is how long a failover may take. Failback is how long a site's declared active must have been up
	// before it gets the lease back (autoFailback).
	Failover, Failback time.Duration
	// TokenBytes is the length of fetch tokens (N19).
	TokenBytes int
	// Peers is the mean time between two calls to a peer region for its members.
	Peers time.Duration
	// Link are the time limits of the link (C52 to C54).
	Link fleet.LinkTiming
}

// DefaultTiming is the timing of a production region.
func DefaultTiming() Timing {
	return Timing{
		Delivery: workflows.DeliveryLimits{
			Request: workflows.DefaultRequest, Total: workflows.DefaultTotal, PendingTTL: workflows.DefaultPendingTTL, Tries: decide.DefaultTries,
		},
		Nodes: time.Minute, Compare: 6 * time.Hour, Collect: time.Hour, Keep: fleet.DefaultRetention(),
		Runtime: 30 * time.Second,
		Purge:   time.Minute, Sweep: 30 * time.Second, Relay: 5 * time.Second, ServerSeen: 10 * time.Second,
		Stranded: 30 * time.Second, ReadIdle: 10 * time.Second, Owed: 2 * time.Second, Report: 2 * time.Second, TokenBytes: 32,
		Link: fleet.DefaultLinkTiming(), Failover: 5 * time.Minute, Failback: 10 * time.Minute,
		Peers: 5 * time.Second,
	}
}

// FastTiming is for demonstrations and tests: failures show up within seconds.
func FastTiming() Timing {
	t := DefaultTiming()
	t.Delivery.Request = 10 * time.Second
	t.Purge, t.Sweep, t.ServerSeen, t.Stranded = 10*time.Second, 5*time.Second, 2*time.Second, 10*time.Second
	t.Nodes, t.Compare = 5*time.Second, 10*time.Minute
	t.Collect, t.Runtime = time.Minute, 5*time.Second
	t.Failover, t.Failback = time.Minute, 20*time.Second
	t.Link = fleet.LinkTiming{
		HeartbeatEvery: time.Second, HeartbeatTimeout: 3 * time.Second, StreamRequired: 6 * time.Second,
		Report: 5 * time.Second, DrainAck: time.Second, Idle: 10 * time.Second,
	}
	t.ReadIdle, t.Report, t.Relay = 3*time.Second, time.Second, 2*time.Second
	t.Peers = time.Second
	return t
}
