// Package decide decides what to do next: pure functions from desired state, observed state and the time to actions
// as data. Nothing here does I/O, reads a clock or depends on map order.
//
// Each decision is an ordered table of rules: the first match wins, and the last rule always matches. A rule's name
// is the stored reason, is shown to users and is a stable API. Decisions that run in a workflow are part of its
// history contract: changing one changes the workflow.
package decide
