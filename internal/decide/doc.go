// Package decide says what to do next: pure functions from what is wanted, what is seen
// and now, to actions as data. Nothing here does I/O, reads a clock or ranges over a map.
//
// Each decision is an ordered table of rules, first match wins, the last always matches.
// A rule's name is the stored reason, shown to users, and a stable API. Decisions that run
// in a workflow are part of its history contract: a change is a change of the workflow.
package decide
