package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func revision(n int64) fleet.Revision {
	return fleet.Revision{
		Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDeploy, Enabled: true,
		Content: fleet.Content{Kind: fleet.ContentJSON, Hash: fleet.Hash(rune('a' + n)), Size: 1},
	}
}

// seen is a site with a (active, epoch 1) and b (standby); revision 2 is wanted, 1 deployed.
func seen(change ...func(*fleet.InstanceSeen)) fleet.InstanceSeen {
	s := fleet.InstanceSeen{
		Desired: revision(2), Snapshot: revision(1), Durability: fleet.DurabilitySync, Holder: "a", Epoch: 1,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func asked(n int) func(*fleet.InstanceSeen) { return func(s *fleet.InstanceSeen) { s.Asked = n } }
func cancelled(n int) func(*fleet.InstanceSeen) {
	return func(s *fleet.InstanceSeen) { s.Cancelled = n }
}
func async(s *fleet.InstanceSeen) { s.Durability = fleet.DurabilityAsync }

func owedTo(n fleet.NodeName) func(*fleet.InstanceSeen) {
	return func(s *fleet.InstanceSeen) { s.Owed = append(s.Owed, fleet.OwedSeen{Node: n}) }
}

// open is a delivery of revision n, with the states of a and b.
func open(n int64, a, b fleet.TargetSeen) func(*fleet.InstanceSeen) {
	return func(s *fleet.InstanceSeen) {
		a.Node, a.Role, b.Node, b.Role = "a", fleet.RoleActive, "b", fleet.RoleStandby
		s.Open = &fleet.DeliverySeen{
			ID: "d", Revision: revision(n), Node: "a", Epoch: 1, Deadline: noon.Add(time.Minute),
			Targets: []fleet.TargetSeen{a, b},
		}
	}
}

func is(state fleet.TargetState) fleet.TargetSeen { return fleet.TargetSeen{State: state} }

func missed(kind fleet.Kind, tries int) fleet.TargetSeen {
	return fleet.TargetSeen{State: fleet.TargetFailed, Reason: kind, Tries: tries}
}

func ahead(t fleet.TargetSeen) fleet.TargetSeen { t.Ahead = true; return t }

// N16, N21, N42, N44, N45, N81, N83, N87, N102, X4, X6, X7
func TestInstance(t *testing.T) {
	t.Parallel()
	waiting, notified, applied, unknown := is(fleet.TargetWaiting), is(fleet.TargetNotified), is(fleet.TargetApplied), is(fleet.TargetUnknown)
	for _, c := range []struct {
		name string
		seen fleet.InstanceSeen
		run  decide.InstanceRun
		rule string
		do   decide.InstanceDo
		node fleet.NodeName
	}{
		{"ends when nothing is asked", seen(), decide.InstanceRun{}, "nothing_to_do", decide.DoNothing, ""},
		{"persists before it tells anybody", seen(asked(1)), decide.InstanceRun{}, "asked", decide.DoClaim, ""},
		{"tells the active first", seen(asked(1), open(2, waiting, waiting)), decide.InstanceRun{}, "notify_active", decide.DoNotify, "a"},
		{"waits for the node it spoke to", seen(asked(1), open(2, notified, waiting)), decide.InstanceRun{InFlight: "a"}, "under_way", decide.DoWait, "a"},
		{"tells the standby after the active's record", seen(asked(1), open(2, applied, waiting)), decide.InstanceRun{}, "replicate", decide.DoNotify, "b"},
		{"closes when both are durable", seen(asked(1), open(2, applied, applied)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"supersedes at any instant", seen(asked(1), open(1, notified, waiting)), decide.InstanceRun{InFlight: "a"}, "newer_revision", decide.DoClaim, ""},
		{"cuts an older replication short", seen(asked(1), open(1, applied, notified)), decide.InstanceRun{InFlight: "b"}, "newer_revision", decide.DoClaim, ""},
		{"cancels at any instant", seen(cancelled(1), open(2, notified, waiting)), decide.InstanceRun{InFlight: "a"}, "cancelled", decide.DoEnd, ""},
		{"goes on while somebody still wants it", seen(asked(1), cancelled(1), open(2, notified, waiting)), decide.InstanceRun{InFlight: "a"}, "under_way", decide.DoWait, "a"},
		{"drops what was cancelled before its start", seen(cancelled(1)), decide.InstanceRun{}, "cancelled_before_start", decide.DoEnd, ""},
		{"asks the node whose answer was lost", seen(asked(1), open(2, unknown, waiting)), decide.InstanceRun{}, "ask_active", decide.DoAsk, "a"},
		{"asks after a run was lost in mid-notify", seen(asked(1), open(2, notified, waiting)), decide.InstanceRun{}, "ask_active", decide.DoAsk, "a"},
		{"gives up asking after three times", seen(asked(1), open(2, unknown, waiting)), decide.InstanceRun{Asks: 3}, "settled", decide.DoEnd, ""},
		{"tries a passing failure again", seen(asked(1), open(2, missed(fleet.Communication, 1), waiting)), decide.InstanceRun{}, "notify_active", decide.DoNotify, "a"},
		{"ends after three passing failures", seen(asked(1), open(2, missed(fleet.Communication, 3), waiting)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"tries again while the lease is on its way", seen(asked(1), open(2, missed(fleet.Stale, 1), waiting)), decide.InstanceRun{}, "notify_active", decide.DoNotify, "a"},
		{"tries a standby again while the lease is on its way", seen(asked(1), open(2, applied, missed(fleet.Stale, 1))), decide.InstanceRun{}, "replicate", decide.DoNotify, "b"},
		{"ends when node and region still disagree", seen(asked(1), open(2, missed(fleet.Stale, 3), waiting)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"never repeats a number to a node that is ahead", seen(asked(1), open(2, ahead(missed(fleet.Stale, 1)), waiting)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"tells whom the record names by then", seen(asked(1), open(2, missed(fleet.Stale, 1), waiting), func(s *fleet.InstanceSeen) { s.Holder, s.Epoch = "b", 2 }), decide.InstanceRun{}, "lease_moved", decide.DoClaim, ""},
		{"never repeats a failure to apply", seen(asked(1), open(2, missed(fleet.ApplyFailed, 1), waiting)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"does not wait for a node that was not there", seen(asked(1), open(2, missed(fleet.Unavailable, 1), waiting)), decide.InstanceRun{}, "settled", decide.DoEnd, ""},
		{"claims anew when the lease moved", seen(asked(1), open(2, waiting, waiting), func(s *fleet.InstanceSeen) { s.Holder, s.Epoch = "b", 2 }), decide.InstanceRun{}, "lease_moved", decide.DoClaim, ""},
		{"ends without an active node", seen(asked(1), func(s *fleet.InstanceSeen) { s.Holder = "" }), decide.InstanceRun{}, "no_active_node", decide.DoEnd, ""},
		{"serves what a standby is owed", seen(owedTo("b")), decide.InstanceRun{}, "owed_to_standby", decide.DoServe, "b"},
		{"claims what the active is owed", seen(owedTo("a")), decide.InstanceRun{}, "owed_to_active", decide.DoClaim, ""},
		{"claims what the active is owed, wherever it stands", seen(owedTo("b"), owedTo("a")), decide.InstanceRun{}, "owed_to_active", decide.DoClaim, ""},
		{"serves no ticket to the active", seen(owedTo("a"), owedTo("b"), func(s *fleet.InstanceSeen) { s.Desired = fleet.Revision{} }), decide.InstanceRun{}, "owed_to_standby", decide.DoServe, "b"},
		{"lets a new request go before an old debt", seen(asked(1), owedTo("b")), decide.InstanceRun{InFlight: "b"}, "asked", decide.DoClaim, ""},
		{"settles what nobody knows", seen(func(s *fleet.InstanceSeen) { s.Unsettled = []fleet.Version{{Era: 1, Revision: 2}} }), decide.InstanceRun{}, "ask_unsettled", decide.DoAsk, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Instance(c.seen, c.run, noon)
			require.Equal(t, c.rule, a.Rule)
			require.Equal(t, c.do, a.Do)
			require.Equal(t, c.node, a.Node)
		})
	}
}

// N14, N41, N43, N78, N81, N102, X4
func TestInstanceOutcome(t *testing.T) {
	t.Parallel()
	waiting, applied, unknown := is(fleet.TargetWaiting), is(fleet.TargetApplied), is(fleet.TargetUnknown)
	for _, c := range []struct {
		name   string
		seen   fleet.InstanceSeen
		state  fleet.DeliveryState
		op     fleet.OperationState
		reason string
		owe    bool
	}{
		{"both durable", seen(open(2, applied, applied)), fleet.DeliverySucceeded, fleet.OperationSucceeded, "", false},
		{"sync without its standby", seen(open(2, applied, missed(fleet.Unavailable, 1))), fleet.DeliveryFailed, fleet.OperationFailed, "not_replicated", false},
		{"async without its standby", seen(async, open(2, applied, missed(fleet.Unavailable, 1))), fleet.DeliverySucceeded, fleet.OperationSucceeded, "not_replicated", false},
		{"a failure to apply is not owed", seen(open(2, missed(fleet.ApplyFailed, 1), waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "apply_failed", false},
		{"a failure of communication stays owed", seen(open(2, missed(fleet.Communication, 3), waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "communication", true},
		{"a node that was not there stays owed", seen(open(2, missed(fleet.Unavailable, 1), waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "unavailable", true},
		{"a stale role or epoch stays owed", seen(open(2, missed(fleet.Stale, 1), waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "stale", true},
		{"a number below what the node took is not owed", seen(open(2, ahead(missed(fleet.Stale, 1)), waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "stale", false},
		{"no answer is unknown, not failed", seen(open(2, unknown, waiting)), fleet.DeliveryUnknown, fleet.OperationUnknown, "no_answer", true},
		{"never reached", seen(open(2, waiting, waiting)), fleet.DeliveryFailed, fleet.OperationFailed, "deadline", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Instance(c.seen, decide.InstanceRun{Asks: 3}, noon.Add(time.Hour))
			require.Equal(t, decide.DoEnd, a.Do)
			require.Equal(t, c.state, a.State)
			require.Equal(t, c.op, a.Operation)
			require.Equal(t, c.reason, a.Reason)
			require.Equal(t, c.owe, a.Owe)
		})
	}
}
