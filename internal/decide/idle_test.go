package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const idleTerm = 30 * time.Second

// C11, C68
func TestNodePoll(t *testing.T) {
	t.Parallel()
	long := time.Hour
	require.Equal(t, 30*time.Second, askAtOnce)
	for _, row := range []struct {
		name string
		seen PollSeen
		want Poll
	}{
		{"a node that has just begun to connect waits for its stream", PollSeen{Quiet: long}, Poll{"connects", false, StreamLimit}},
		{"it asks without one when that takes too long", PollSeen{Quiet: long, Lost: StreamLimit}, Poll{"no_stream", true, askAtOnce}},
		{"one of a region that wakes nobody asks all the time", PollSeen{Quiet: long, Connected: true}, Poll{"never_idles", true, 0}},
		{"one that is connected rests", PollSeen{Idle: idleTerm, Quiet: long, Connected: true}, Poll{"idle", false, 0}},
		{"a wake has it ask for all of the term", PollSeen{Idle: idleTerm, Connected: true}, Poll{PollWoken, true, idleTerm}},
		{"and for what is left of it", PollSeen{Idle: idleTerm, Quiet: 20 * time.Second, Connected: true}, Poll{PollWoken, true, 10 * time.Second}},
		{"a lost stream takes nothing of it away", PollSeen{Idle: idleTerm, Quiet: 20 * time.Second, Lost: long}, Poll{PollWoken, true, 10 * time.Second}},
		{"the term ends with its last moment", PollSeen{Idle: idleTerm, Quiet: idleTerm, Connected: true}, Poll{"idle", false, 0}},
		{"who works asks for more", PollSeen{Idle: idleTerm, Quiet: long, Working: true, Connected: true}, Poll{"working", true, askAtOnce}},
		{"no longer than it would idle", PollSeen{Idle: time.Second, Quiet: long, Working: true, Connected: true}, Poll{"working", true, time.Second}},
		{"one that is drained asks for nothing new", PollSeen{Idle: idleTerm, Working: true, Connected: true, Draining: true}, Poll{"draining", false, 0}},
		{"but for one whose stream went, whatever it was at", PollSeen{Idle: idleTerm, Working: true, Draining: true}, Poll{"working", true, askAtOnce}},
		{"a stream that was lost just now may come back", PollSeen{Idle: idleTerm, Quiet: long, Lost: 5 * time.Second}, Poll{"connects", false, StreamLimit - 5*time.Second}},
		{"without it nobody could wake the node", PollSeen{Idle: idleTerm, Quiet: long, Lost: StreamLimit}, Poll{"no_stream", true, askAtOnce}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, NodePoll(row.seen))
		})
	}
}

// Whatever happened, a node rests only while it is drained, or a wake would reach it or its stream may yet come
// back, never within its term, and never for longer than until that is decided anew.
func TestNodePollIsSafe(t *testing.T) {
	t.Parallel()
	some := func(t *rapid.T, name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(2*StreamLimit)).Draw(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		s := PollSeen{
			Idle: rapid.SampledFrom([]time.Duration{0, time.Second, idleTerm}).Draw(t, "idle"), Quiet: some(t, "quiet"),
			Working: rapid.Bool().Draw(t, "working"), Draining: rapid.Bool().Draw(t, "draining"), Connected: rapid.Bool().Draw(t, "connected"), Lost: some(t, "lost"),
		}
		p := NodePoll(s)
		if p.Ask {
			return
		}
		if s.Draining && s.Connected {
			return // its stream ends with the drain
		}
		require.False(t, s.Working)
		require.GreaterOrEqual(t, s.Quiet, s.Idle)
		if s.Connected {
			require.Positive(t, s.Idle, "a region that wakes nobody")
			return
		}
		require.Positive(t, p.For)
		require.LessOrEqual(t, s.Lost+p.For, StreamLimit)
	})
}

// A task that is said to be coming arrives while its node still asks, though nobody says so again.
func TestSayAgain(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, SayAgain(idleTerm), idleTerm/2)
	require.Positive(t, SayAgain(time.Second))
}
