// Package lease decides who is a site's active node. It is pure: it does no I/O and reads no
// clock; now is passed in, and what must be durable comes back as data. The protocol, with
// the reason of each rule, is docs/lease.md.
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
// Who owns which truth: a Record is one voter's vote, durable before anybody hears of it. A
// Claim is what a node may go on holding after its agent restarted. Clocks are in Voter and
// Candidate and end with their process, which makes both wait longer, never shorter.
//
// A caller handles one event at a time: it calls a method, persists what the method says has
// changed, keeps the new value, and only then answers or sends. When it cannot persist it
// drops the new value, and starts again from what is durable if it cannot tell what is.
package lease
