package decide

import "time"

// Beats is how long a server has said that it lives, without a gap: the first and the last
// time of an unbroken row, on a clock that also counts while the machine sleeps.
type Beats struct{ First, Last time.Duration }

// Silence is how long servers may be silent. Every is how often each says that it lives,
// Gone after how long its build has no worker any more.
type Silence struct{ Every, Gone time.Duration }

// Beat adds one. Where it comes so late that others may have been silent for as long without
// being gone (the database was away, this process was paused), a new row begins.
func (s Silence) Beat(b Beats, now time.Duration) Beats {
	if b == (Beats{}) || now-b.Last > s.gap() {
		return Beats{First: now, Last: now}
	}
	return Beats{First: b.First, Last: now}
}

// CanTell says whether who was not seen for Gone is gone. A server that was silent itself
// cannot tell: what kept it from the database kept the others too, and they may not have had
// time to say that they live (X25).
func (s Silence) CanTell(b Beats, now time.Duration) bool {
	return b != (Beats{}) && now-b.Last <= s.gap() && now-b.First >= s.Gone
}

// gap leaves room for the last beat of another server, which may be older by Every.
func (s Silence) gap() time.Duration { return s.Gone - s.Every }
