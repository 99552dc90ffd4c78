// Package activities holds the side effects of the workflows: one effect per method,
// through interfaces declared here. Nothing here decides, and nothing here writes SQL.
// Every activity may run twice: its key is in the input and reaches the effect, and
// "already so" is success.
package activities
