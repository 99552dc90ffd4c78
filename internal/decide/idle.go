package decide

import "time"

// PollSeen is what a node knows when it is about to ask for tasks.
type PollSeen struct {
	// Idle is the region's term: how long to go on asking after the last task or wake. 0 is for
	// ever, and what a region says that wakes nobody.
	Idle time.Duration
	// Quiet is how long ago the node was woken, or had a task.
	Quiet   time.Duration
	Working bool
	// Draining says that the region drains the node's connection: what is at work ends, nothing new comes.
	Draining bool
	// Connected says that its stream lives, on which a wake comes; Lost is for how long it does not.
	Connected bool
	Lost      time.Duration
}

// Poll says whether a node asks for tasks.
type Poll struct {
	Rule string
	Ask  bool
	// For is how long to ask, or not to ask, before this is decided again; 0 is until something
	// happens.
	For time.Duration
}

// PollWoken is the rule by which a node asks because of a task or a wake.
const PollWoken = "woken"

const (
	// StreamLimit is how long a node waits for its stream before it asks without one: twice what it
	// waits at most between two attempts, so that a server which is lost, or a storm, does not have
	// all idle nodes ask at once.
	StreamLimit = 2 * time.Minute
	// askAtOnce is how long a node asks before it decides anew, when that has no end of its own.
	askAtOnce = 30 * time.Second
)

var pollRules = []struct {
	name string
	when func(PollSeen) bool
	then func(PollSeen) Poll
}{
	{"draining", func(s PollSeen) bool { return s.Connected && s.Draining }, func(PollSeen) Poll { return Poll{} }},
	{"working", func(s PollSeen) bool { return s.Working }, func(PollSeen) Poll { return Poll{Ask: true, For: askAtOnce} }},
	{PollWoken, func(s PollSeen) bool { return s.Quiet < s.Idle }, func(s PollSeen) Poll { return Poll{Ask: true, For: s.Idle - s.Quiet} }},
	{"connects", func(s PollSeen) bool { return !s.Connected && s.Lost < StreamLimit }, func(s PollSeen) Poll { return Poll{For: StreamLimit - s.Lost} }},
	{"no_stream", func(s PollSeen) bool { return !s.Connected }, func(PollSeen) Poll { return Poll{Ask: true, For: askAtOnce} }},
	{"never_idles", func(s PollSeen) bool { return s.Idle <= 0 }, func(PollSeen) Poll { return Poll{Ask: true} }},
	{"idle", func(PollSeen) bool { return true }, func(PollSeen) Poll { return Poll{} }},
}

// NodePoll decides whether a node asks for tasks: it rests only while it is drained, or somebody could
// wake it.
func NodePoll(s PollSeen) Poll {
	for _, r := range pollRules {
		if r.when(s) {
			p := r.then(s)
			p.Rule = r.name
			return p
		}
	}
	return Poll{Rule: "never_idles", Ask: true}
}

// SayAgain is for how long a node that was said to be wanted need not be said so again: the rest
// of its idle time is for the wake and the task to arrive.
func SayAgain(idle time.Duration) time.Duration { return idle / 4 }
