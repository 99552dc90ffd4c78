// Package plans serves plan and apply (docs/plan.md).
//
//	read ─▶ name ─▶ hash ─▶ look up ─▶ decide ─▶ prune ─▶ detail ─▶ the answer of a plan
//	                                                              └▶ write, object by object: an apply
//
// A plan writes nothing. What is wrong with one object stays with it; an error is about the request, or the
// region. What each kind adds is a row of kinds.go. What a write of one object does too comes in Deps, from the
// handlers of the nouns.
package plans
