package provider

import (
	"sync"
	"time"
)

// lastSend is what a send that is under way may still take when the program closes. Cut at once, a
// stream looks broken to the region before it hears that it was closed (C62).
const lastSend = time.Second

// sendLimit cuts a stream whose send takes too long, and none whose send has returned.
type sendLimit struct {
	cut      func(error)
	deadline time.Time

	mu      sync.Mutex
	timer   *time.Timer
	why     error // what a cut is for
	over    bool
	reached error // nil: nothing was cut
}

func newSendLimit(d time.Duration, cut func(error), late error) *sendLimit {
	l := &sendLimit{cut: cut, deadline: time.Now().Add(d), why: late}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(d, l.reach)
	return l
}

// hurry leaves the send a moment, because the program closes.
func (l *sendLimit) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.reached != nil || time.Until(l.deadline) <= lastSend {
		return
	}
	l.why = errClosed
	l.timer.Reset(lastSend)
}

func (l *sendLimit) reach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.reached != nil {
		return
	}
	l.reached = l.why
	l.cut(l.why)
}

// end says that the send has returned, and for what the stream was cut before.
func (l *sendLimit) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
	return l.reached
}
