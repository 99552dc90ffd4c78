package decide

import "time"

// PollSeen is what a node knows when it decides whether to poll for tasks.
type PollSeen struct {
	// Idle is the region's setting: how long to keep polling after the last task or wake. 0 means for ever; a
	// region that cannot wake nodes sends that.
	Idle time.Duration
	// Quiet is how long ago the node was woken or had a task.
	Quiet   time.Duration
	Working bool
	// Draining means that the region drains the node's connection: current work finishes, no new work comes.
	Draining bool
	// Connected means that its stream is up, so a wake can arrive; Lost is how long it has been down.
	Connected bool
	Lost      time.Duration
}

// Poll is whether a node polls for tasks.
type Poll struct {
	Rule string
	Ask  bool
	// For is how long to poll, or not to poll, before deciding again; 0 means until something happens.
	For time.Duration
}

// PollWoken is the rule by which a node polls because of a task or a wake.
const PollWoken = "woken"

const (
	// StreamLimit is how long a node waits for its stream before it polls without one. It is twice the longest wait
	// between two attempts, so that a lost server or a storm does not make all idle nodes poll at once.
	StreamLimit = 2 * time.Minute
	// askAtOnce is how long a node polls before it decides again, where no rule sets another time, and its idle time is no
	// shorter.
	askAtOnce = 30 * time.Second
)

// askFor is how long a node polls that cannot rest now, but may afterwards.
func askFor(s PollSeen) time.Duration {
	if s.Idle > 0 {
		return min(s.Idle, askAtOnce)
	}
	return askAtOnce
}

var pollRules = []struct {
	name string
	when func(PollSeen) bool
	then func(PollSeen) Poll
}{
	{"draining", func(s PollSeen) bool { return s.Connected && s.Draining }, func(PollSeen) Poll { return Poll{} }},
	{"working", func(s PollSeen) bool { return s.Working }, func(s PollSeen) Poll { return Poll{Ask: true, For: askFor(s)} }},
	{PollWoken, func(s PollSeen) bool { return s.Quiet < s.Idle }, func(s PollSeen) Poll { return Poll{Ask: true, For: s.Idle - s.Quiet} }},
	{"connects", func(s PollSeen) bool { return !s.Connected && s.Lost < StreamLimit }, func(s PollSeen) Poll { return Poll{For: StreamLimit - s.Lost} }},
	{"no_stream", func(s PollSeen) bool { return !s.Connected }, func(s PollSeen) Poll { return Poll{Ask: true, For: askFor(s)} }},
	{"never_idles", func(s PollSeen) bool { return s.Idle <= 0 }, func(PollSeen) Poll { return Poll{Ask: true} }},
	{"idle", func(PollSeen) bool { return true }, func(PollSeen) Poll { return Poll{} }},
}

// NodePoll decides whether a node polls for tasks. It rests only while it is drained, or while the region can wake
// it.
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

// SayAgain is for how long a node that was woken need not be woken again. The rest of its idle time is for the wake
// and the task to arrive.
func SayAgain(idle time.Duration) time.Duration { return idle / 4 }
