// Package declaration makes of what people declare what the region writes: specs with their defaults and pins, the bodies that they
// refer to, and what is wrong with either.
//
//	body ─▶ read (package declare) ─▶ refer, pin, place (Reads) ─▶ fill (Bodies) ─▶ the change that the store takes
//
// A PUT, an apply, a plan, a fleet change and the door of any Temporal client make their change here, so all of them give the same
// revision, or the same error. They differ in what they read: a plan sees the objects of its request as they will be. Errors are
// *fleet.Error, and name places in the body of a PUT.
package declaration
