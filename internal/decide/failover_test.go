package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func failoverSeen(edits ...func(*fleet.FailoverSeen)) fleet.FailoverSeen {
	at := time.Unix(1000, 0)
	s := fleet.FailoverSeen{
		At: at, Operation: "op", To: "b", Asked: at, Deadline: at.Add(time.Minute), Holder: "a", Epoch: 6,
		Voters: []fleet.NodeName{"a", "b"},
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// N60, X8, X21
func TestFailover(t *testing.T) {
	t.Parallel()
	type (
		seen = fleet.FailoverSeen
		run  = decide.FailoverRun
	)
	released := &decide.NodeAnswer{Node: "a", Done: true, Epoch: 6}
	away := &decide.NodeAnswer{Node: "a", NotThere: true, Reason: "timeout"}
	holds := &decide.NodeAnswer{Node: "b", Done: true, Epoch: 7}
	not := &decide.NodeAnswer{Node: "b", Reason: "held"}
	at := failoverSeen().At
	// voted is a lease that the region hears of, whose nodes could be there for an hour.
	voted := func(edits ...func(*seen)) func(*seen) {
		return func(s *seen) {
			s.TTL, s.Counter, s.There = 15*time.Second, 9, s.At.Add(-time.Hour)
			for _, edit := range edits {
				edit(s)
			}
		}
	}
	here, lost := func(s *seen) { s.There = s.At.Add(time.Second) }, func(s *seen) { s.Lost = true }
	for _, c := range []struct {
		name string
		edit func(*seen)
		run  run
		rule string
		do   decide.FailoverDo
	}{
		{"nobody asks", func(s *seen) { s.Operation = "" }, run{}, "nothing_asked", decide.FailoverNothing},
		{"it is so already", func(s *seen) { s.Holder = "b" }, run{}, "moved", decide.FailoverFinish},
		{"the target gave it back since", func(s *seen) { s.Holder, s.Released = "b", true }, run{}, "take_over", decide.FailoverTakeOver},
		{"graceful", func(*seen) {}, run{}, "hand_over", decide.FailoverHandOver},
		{"the target is away: nothing is stopped for it", func(s *seen) { s.Away = true }, run{}, "target_not_there", decide.FailoverWait},
		{"the target did not come", func(s *seen) { s.Away, s.Deadline = true, s.At }, run{}, "target_not_there", decide.FailoverFinish},
		{"the target goes while the holder stops", func(s *seen) { s.Away = true }, run{InFlight: true}, "node_asked", decide.FailoverWait},
		{"the target goes when the holder has released", func(s *seen) { s.Away, s.Released = true, true }, run{HandOver: released}, "take_over", decide.FailoverTakeOver},
		{"nobody holds it, and the target is away", func(s *seen) { s.Away, s.Released = true, true }, run{}, "take_over", decide.FailoverTakeOver},
		{"forced, and the target is away", func(s *seen) { s.Away, s.Force = true, true }, run{}, "aim", decide.FailoverAim},
		{"the holder stops", func(*seen) {}, run{InFlight: true}, "node_asked", decide.FailoverWait},
		{"the holder released", func(s *seen) { s.Released = true }, run{HandOver: released}, "take_over", decide.FailoverTakeOver},
		{"the holder released to its peer, the region knows later", func(*seen) {}, run{HandOver: released}, "take_over", decide.FailoverTakeOver},
		{"the holder would not", func(*seen) {}, run{HandOver: &decide.NodeAnswer{Node: "a", Reason: "still stopping"}}, "not_released", decide.FailoverFinish},
		{"the holder is away", func(*seen) {}, run{HandOver: away}, "aim", decide.FailoverAim},
		{"the holder did not answer and renewed a moment ago", voted(), run{HandOver: away, Moved: at.Add(-14 * time.Second)}, "holder_not_reached", decide.FailoverWait},
		{"the holder did not answer and renews: it is asked again", voted(), run{HandOver: away, Moved: at, Renewed: true}, "hand_over", decide.FailoverHandOver},
		{"the holder did not answer and is asked again while it renews", voted(), run{HandOver: away, Moved: at, Renewed: true, InFlight: true}, "node_asked", decide.FailoverWait},
		{"the holder renewed, and stopped to", voted(), run{HandOver: away, Moved: at.Add(-15 * time.Second), Renewed: true}, "aim", decide.FailoverAim},
		{"nobody could have heard the holder renew", voted(here), run{HandOver: away, Moved: at.Add(-time.Hour)}, "holder_not_reached", decide.FailoverWait},
		{"the region was there to hear the holder renew", voted(func(s *seen) { s.There = s.At.Add(-15 * time.Second) }), run{HandOver: away, Moved: at.Add(-time.Hour)}, "aim", decide.FailoverAim},
		{"a vote that is lost hears nobody renew: the target may hold by now", voted(lost), run{HandOver: away, Moved: at.Add(-time.Hour)}, "take_over_unseen", decide.FailoverTakeOver},
		{"it does", voted(lost), run{HandOver: away, TakeOver: holds}, "moved_unseen", decide.FailoverFinish},
		{"it does not", voted(lost), run{HandOver: away, TakeOver: not, Moved: at.Add(-time.Hour)}, "holder_not_reached", decide.FailoverWait},
		{"and has the holder asked again", voted(lost), run{HandOver: away, TakeOver: not, Moved: at.Add(-time.Hour), Waits: 4}, "hand_over", decide.FailoverHandOver},
		{"the holder renews, and the target is away by now", voted(func(s *seen) { s.Away = true }), run{HandOver: away, Moved: at, Renewed: true}, "target_not_there", decide.FailoverWait},
		{"the holder renews until it is too late", voted(func(s *seen) { s.Deadline = s.At }), run{HandOver: away, Moved: at, Renewed: true}, "deadline", decide.FailoverFinish},
		{"the holder renews, and it is forced", voted(func(s *seen) { s.Force = true }), run{HandOver: away, Moved: at, Renewed: true}, "aim", decide.FailoverAim},
		{"the holder released while it could not answer", voted(func(s *seen) { s.Released = true }), run{HandOver: away, Moved: at, Renewed: true}, "take_over", decide.FailoverTakeOver},
		{"the region was away, and the holder is not back yet", voted(here, func(s *seen) { s.HolderAway = true }), run{}, "holder_not_there", decide.FailoverWait},
		{"the region was away, and the holder is back", voted(here), run{}, "hand_over", decide.FailoverHandOver},
		{"the holder is off the link, and could be there", voted(func(s *seen) { s.HolderAway = true }), run{}, "hand_over", decide.FailoverHandOver},
		{"the holder is off the link until it is too late", voted(here, func(s *seen) { s.HolderAway, s.Deadline = true, s.At }), run{}, "deadline", decide.FailoverFinish},
		{"the vote is aimed", func(s *seen) { s.Target = "b" }, run{HandOver: away}, "take_over", decide.FailoverTakeOver},
		{"forced", func(s *seen) { s.Force = true }, run{}, "aim", decide.FailoverAim},
		{"forced, the region's vote is lost", func(s *seen) { s.Force, s.Lost = true, true }, run{}, "take_over", decide.FailoverTakeOver},
		{"it holds, the record follows", func(*seen) {}, run{HandOver: released, TakeOver: holds}, "votes_decide", decide.FailoverWait},
		{"it holds without the region", func(s *seen) { s.Lost = true }, run{HandOver: released, TakeOver: holds}, "moved_unseen", decide.FailoverFinish},
		{"the votes said no", func(*seen) {}, run{HandOver: released, TakeOver: not}, "votes_decide", decide.FailoverWait},
		{"and is asked again", func(*seen) {}, run{HandOver: released, TakeOver: not, Waits: 4}, "take_over", decide.FailoverTakeOver},
		{"the region's vote is there again", func(*seen) {}, run{HandOver: away, TakeOver: not, Waits: 4}, "aim", decide.FailoverAim},
		{"and not aimed at again", func(*seen) {}, run{HandOver: away, TakeOver: not, Waits: 4, Aimed: true}, "take_over", decide.FailoverTakeOver},
		{"too late while aimed", func(s *seen) { s.Deadline, s.Target = s.At, "b" }, run{HandOver: away, TakeOver: not, Aimed: true}, "aim_withdrawn", decide.FailoverWithdraw},
		{"the holder would not while aimed", func(s *seen) { s.Target = "b" }, run{HandOver: &decide.NodeAnswer{Node: "a", Reason: "still stopping"}}, "aim_withdrawn", decide.FailoverWithdraw},
		{"what was asked before had aimed", func(s *seen) { s.Target = "a" }, run{}, "aim_withdrawn", decide.FailoverWithdraw},
		{"what was asked before had aimed, and it is so already", func(s *seen) { s.Holder, s.Target = "b", "a" }, run{}, "aim_withdrawn", decide.FailoverWithdraw},
		{"aimed, and it is so already", func(s *seen) { s.Holder, s.Target = "b", "b" }, run{Aimed: true}, "moved", decide.FailoverFinish},
		{"aimed, and the site has one node now", func(s *seen) { s.Target, s.Voters = "b", []fleet.NodeName{"a"} }, run{Aimed: true}, "not_a_voter", decide.FailoverFinish},
		{"too late", func(s *seen) { s.Deadline = s.At }, run{HandOver: away, TakeOver: not}, "deadline", decide.FailoverFinish},
		{"too late, but done", func(s *seen) { s.Deadline, s.Holder = s.At, "b" }, run{}, "moved", decide.FailoverFinish},
		{"cancelled", func(s *seen) { s.Cancelled = true }, run{InFlight: true}, "cancelled", decide.FailoverFinish},
		{"cancelled while aimed", func(s *seen) { s.Cancelled, s.Target = true, "b" }, run{}, "aim_withdrawn", decide.FailoverWithdraw},
		{"the target was taken out of the site", func(s *seen) { s.Voters = []fleet.NodeName{"a", "c"} }, run{}, "not_a_voter", decide.FailoverFinish},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := decide.Failover(failoverSeen(c.edit), c.run)
			require.Equal(t, c.rule, got.Rule)
			require.Equal(t, c.do, got.Do)
		})
	}
	t.Run("leaves time for what is to follow, and looks often enough", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 30*time.Second, decide.Failover(failoverSeen(), run{}).Limit, "half of it is the target's")
		require.Equal(t, 1875*time.Millisecond, decide.Failover(failoverSeen(voted()), run{HandOver: away, Moved: at}).Wait, "an eighth of a lease")
		voting := run{HandOver: released, TakeOver: holds}
		voting.Waits = 4
		require.Equal(t, 250*time.Millisecond, decide.Failover(failoverSeen(), voting).Wait)
		voting.Waits = 5
		require.Equal(t, 2*time.Second, decide.Failover(failoverSeen(), voting).Wait)
	})
	t.Run("says what each answered", func(t *testing.T) {
		t.Parallel()
		got := decide.Failover(failoverSeen(func(s *seen) { s.Deadline, s.Lost = s.At, true }), run{HandOver: away, TakeOver: not})
		require.Equal(t, "node b did not: held; the holder was not reached: timeout; the region has a on record at epoch 6, "+
			"and its vote is lost until it has heard from both nodes", got.Message)
		got = decide.Failover(failoverSeen(func(s *seen) { s.Deadline, s.Away = s.At, true }), run{})
		require.Equal(t, "node b was not connected, so nothing was stopped: a holds the lease at epoch 6; "+
			"start it (see holdfast describe node b), and retry", got.Message)
		got = decide.Failover(failoverSeen(voted(func(s *seen) { s.Deadline, s.Away = s.At, true })), run{HandOver: away, Moved: at, Renewed: true})
		require.Equal(t, "node b was not connected, so the holder, which was not reached: timeout, was not asked again: a holds the lease at epoch 6; "+
			"start it (see holdfast describe node b), and retry", got.Message)
		got = decide.Failover(failoverSeen(voted(func(s *seen) { s.Deadline = s.At })), run{HandOver: away, Moved: at})
		require.Equal(t, "node b was not asked; the holder was not reached: timeout, and may be running: --force does not ask it; "+
			"the region has a on record at epoch 6", got.Message)
	})
}

// X5: a renewal counts from the second look after a node answered; what came before may be older than its silence.
func TestFailoverWatches(t *testing.T) {
	t.Parallel()
	at := func(second int64, counter int64) fleet.FailoverSeen {
		return failoverSeen(func(s *fleet.FailoverSeen) { s.At, s.Counter = time.Unix(second, 0), counter })
	}
	r := decide.FailoverRun{}.Watched(at(1, 5)).Watched(at(2, 6))
	require.Equal(t, time.Unix(2, 0), r.Moved)
	r = r.Answered().Watched(at(3, 7))
	require.Equal(t, time.Unix(3, 0), r.Moved)
	require.False(t, r.Renewed, "it may have been before")
	r = r.Watched(at(4, 7))
	require.Equal(t, time.Unix(3, 0), r.Moved)
	require.False(t, r.Renewed)
	r = r.Watched(at(5, 8)).Watched(at(6, 8))
	require.True(t, r.Renewed)
	require.False(t, r.Answered().Watched(at(7, 8)).Renewed)
}

// X8, X21: whatever is seen, the record is only written where nobody votes, what waits says
// why and for how long, an end says how, and nobody is asked to stop for a target that is away.
// A vote is aimed once, at the target, and no end leaves it withheld from whom the lease is for.
func TestFailoverAlways(t *testing.T) {
	t.Parallel()
	answer := rapid.Custom(func(t *rapid.T) *decide.NodeAnswer {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &decide.NodeAnswer{Node: "a", Done: rapid.Bool().Draw(t, "done"), Reason: "r", NotThere: rapid.Bool().Draw(t, "away")}
	})
	name := rapid.SampledFrom([]fleet.NodeName{"", "a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		flag := func(n string) bool { return rapid.Bool().Draw(t, n) }
		s := failoverSeen(func(s *fleet.FailoverSeen) {
			s.Force, s.Cancelled, s.Released, s.Lost = flag("force"), flag("cancelled"), flag("released"), flag("lost")
			s.Away, s.HolderAway = flag("away"), flag("holder away")
			s.TTL, s.There = time.Duration(rapid.IntRange(0, 1).Draw(t, "ttl"))*15*time.Second, s.At.Add(time.Duration(rapid.IntRange(-60, 0).Draw(t, "there"))*time.Second)
			s.Holder, s.Target, s.To = name.Draw(t, "holder"), name.Draw(t, "target"), name.Draw(t, "to")
			s.Deadline = s.At.Add(time.Duration(rapid.IntRange(-5, 60).Draw(t, "left")) * time.Second)
		})
		aimed, moved := flag("aimed"), s.At.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "moved"))*time.Second)
		heard := s.TTL > 0 && (s.At.Sub(moved) < s.TTL || s.At.Sub(s.There) < s.TTL)
		a := decide.Failover(s, decide.FailoverRun{
			InFlight: flag("in flight"), HandOver: answer.Draw(t, "hand over"), TakeOver: answer.Draw(t, "take over"),
			Waits: rapid.IntRange(0, 9).Draw(t, "waits"), Aimed: aimed, Moved: moved, Renewed: flag("renewed"),
		})
		require.NotEmpty(t, a.Rule)
		switch a.Do {
		case decide.FailoverWait:
			require.Positive(t, a.Wait)
			require.NotEmpty(t, a.Message)
		case decide.FailoverFinish:
			require.True(t, a.State.Ended())
			require.NotEmpty(t, a.Message)
			require.True(t, s.Target == "" || s.Target == s.To && a.State == fleet.OperationSucceeded, "its aim outlives it")
		case decide.FailoverHandOver, decide.FailoverTakeOver:
			require.Positive(t, a.Limit)
			require.False(t, a.Do == decide.FailoverHandOver && s.Away, "it stops what runs for nobody")
			require.False(t, a.Forced && heard && !s.Force && !s.Released, "it takes the lease of a holder that may be there")
		case decide.FailoverAim:
			require.False(t, heard && !s.Force, "it has the votes wait for a holder that may be there")
			require.Empty(t, s.Target)
			require.False(t, aimed, "it aims twice")
		case decide.FailoverWithdraw:
			require.NotEmpty(t, s.Target)
		case decide.FailoverNothing:
			require.Fail(t, "somebody asked")
		}
	})
}

// autoFailback: only to a node that is there, has been for a while, and holds all.
func TestFailback(t *testing.T) {
	t.Parallel()
	const stable = 10 * time.Minute
	good := fleet.Failback{Site: "s", Node: "a", Holder: "b", Ready: true, Level: true, Unseen: 30 * time.Second, Up: stable, Held: stable}
	for reason, edit := range map[string]func(*fleet.Failback){
		"failback":   func(*fleet.Failback) {},
		"holds":      func(f *fleet.Failback) { f.Holder = "a" },
		"under_way":  func(f *fleet.Failback) { f.UnderWay = true },
		"unsettled":  func(f *fleet.Failback) { f.Unsettled = true },
		"not_ready":  func(f *fleet.Failback) { f.Ready = false },
		"not_there":  func(f *fleet.Failback) { f.Unseen = 30*time.Second + 1 },
		"not_stable": func(f *fleet.Failback) { f.Up = stable - 1 },
		"behind":     func(f *fleet.Failback) { f.Level = false },
	} {
		f := good
		edit(&f)
		got, back := decide.Failback(f, stable)
		require.Equal(t, reason, got)
		require.Equal(t, reason == "failback", back)
	}
}
