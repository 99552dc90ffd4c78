// Package lease decides which node of a site is active. It is pure: it does no I/O and reads no clock; the
// caller passes in now, and gets back as data what must be durable. docs/lease.md has the protocol, with the
// reason of each rule.
//
//	candidate                                    each voter (pair and region)
//	 idle ──Ask────────▶ would you?              promises nothing
//	  │  a majority would
//	  ▼
//	 promising ──Promise(e)──▶                   e above all it promised; persisted, answered
//	  │  a majority did
//	  ▼
//	 promising ──Grant(e,n)──▶                   (holder, e, n) persisted, answered
//	  │  a majority did: deadline = when it was sent + TTL
//	  ▼
//	 holding ──Grant(e,n+1)──▶ at each heartbeat; a higher promise: Ask again, still holding
//	  │  hand-over: stop what runs
//	  ▼
//	 releasing ──Release(e,n)─▶                  favours the next at once
//
// Who owns which truth: a Record is one voter's vote, durable before any other process learns of it. A Claim is
// what a node may keep after its agent restarted. Clocks are in Voter and Candidate and end with their process,
// which makes both wait longer, never shorter.
//
// A caller handles one event at a time: it calls a method, persists what the method reports as changed, keeps
// the new value, and only then answers or sends. If it cannot persist, it drops the new value; if it cannot
// tell what is durable, it loads that and starts again.
package lease
