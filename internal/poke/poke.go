// Package poke wakes a loop that waits on a channel.
package poke

// Once wakes the reader of c, a channel with room for one: who pokes before the reader has looked is served by the same
// look.
func Once(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
