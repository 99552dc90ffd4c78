// Package fleet holds the nouns: names and ids, what people declare, revisions and their
// order, the states of operations and deliveries, and the kinds of errors. It imports the
// standard library only, and everything imports it.
package fleet
