package provider

import (
	"sync"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// notices pass events to the callbacks. Sending one never blocks: the newest of each kind is kept.
type notices struct {
	opt   Options
	more  chan struct{}
	ended chan struct{}

	mu      sync.Mutex
	news    news
	closing bool
}

type news struct {
	status  *Status
	modules *[]string
	drain   *Drain
	wake    bool
	site    *nodev1.Site
	set     *nodev1.ReplicaSet
	report  bool
}

func newNotices(opt Options) *notices {
	n := &notices{opt: opt, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go n.run()
	return n
}

func (n *notices) run() {
	defer close(n.ended)
	for range n.more {
		n.mu.Lock()
		news, closing := n.news, n.closing
		n.news.clear()
		n.mu.Unlock()
		n.tell(news)
		if closing {
			return
		}
	}
}

func (n *news) clear() { *n = news{} }

func (n *notices) tell(news news) {
	if news.drain != nil && n.opt.OnDrain != nil {
		n.opt.OnDrain(*news.drain)
	}
	if news.wake && n.opt.OnWake != nil {
		n.opt.OnWake()
	}
	if news.site != nil && n.opt.OnSite != nil {
		n.opt.OnSite(news.site)
	}
	if news.set != nil && n.opt.OnReplicaSet != nil {
		n.opt.OnReplicaSet(news.set.GetEra(), news.set.GetVersion())
	}
	if news.report && n.opt.OnReplicasReport != nil {
		n.opt.OnReplicasReport()
	}
	if news.modules != nil && n.opt.OnReport != nil {
		n.opt.OnReport(*news.modules)
	}
	if news.status != nil && n.opt.OnState != nil {
		n.opt.OnState(*news.status)
	}
}

func (n *notices) put(change func(*news)) {
	n.mu.Lock()
	change(&n.news)
	n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default: // one is queued
	}
}

func (n *notices) state(s Status)           { n.put(func(w *news) { w.status = &s }) }
func (n *notices) report(modules []string)  { n.put(func(w *news) { w.modules = &modules }) }
func (n *notices) drain(d Drain)            { n.put(func(w *news) { w.drain = &d }) }
func (n *notices) wake()                    { n.put(func(w *news) { w.wake = true }) }
func (n *notices) set(s *nodev1.ReplicaSet) { n.put(func(w *news) { w.set = s }) }
func (n *notices) askReport()               { n.put(func(w *news) { w.report = true }) }

// site passes on a node's site; most registrations are not of a node and have none.
func (n *notices) site(s *nodev1.Site) {
	if s != nil {
		n.put(func(w *news) { w.site = s })
	}
}

// close passes on what is left and waits for the running callback.
func (n *notices) close() {
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
	<-n.ended
}
