// Package fleet holds the nouns: names and ids, declared objects, revisions and their order, states of operations
// and deliveries, and error kinds. It imports only the standard library, and every other package imports it.
package fleet
