// Package executors sends executions to the providers that offer a module.
//
// Who offers what is the database's truth: the live connections (internal/link writes them).
// The pool looks that up, keeps the answer for a second at most, and forgets it when it hears
// that a connection changed. It dials what the registrations name: one gRPC connection per
// address, shared by all executions, closed when the last registration at that address is gone
// and nothing is in flight there.
//
//	Execute -> members (cache, database) -> input against their schema
//	        -> slot of one, round robin; none free: wait a little, then unavailable
//	        -> call -> output against its schema
//	             \-> not begun, or broken off: the next member, with the same execution id
//
// A try that was not begun, or of which no answer came, is made again at another member, at
// most once at each and within the deadline. What a module answers, an error too, is final.
// The end of a registration cuts nothing that is in flight: the call is its own sign of life,
// and pings find a dead peer within 15 s.
package executors
