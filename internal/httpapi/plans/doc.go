// Package plans serves plan and apply (docs/plan.md).
//
//	read ─▶ name ─▶ hash ─▶ look up ─▶ decide ─▶ prune ─▶ detail ─▶ the answer of a plan
//	                                                              └▶ write, object by object: an apply
//
// A plan writes nothing. What is wrong with one object stays with it; an error is about the request, or the
// region. What each kind adds is a row of kinds.go. What a PUT of one object makes of it too is made by package
// declaration, which sees the objects of the request as they will be (view.go).
package plans
