package provider

import (
	"sync"
	"time"
)

// lastSend is how long a send under way may still take when the program closes. If it were cut at once, the
// stream would look broken to the region before the region gets the deregistration (C62).
const lastSend = time.Second

// sendLimit cuts a stream whose send takes too long; a send that has returned is never cut.
type sendLimit struct {
	cut      func(error)
	deadline time.Time

	mu      sync.Mutex
	timer   *time.Timer
	why     error // the reason of a cut
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

// end marks the send as returned, and gives the reason if the stream was cut before.
func (l *sendLimit) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
	return l.reached
}
