// Package watch serves watches: streams of objects as they are, and then as they change, for users and for other
// regions.
//
// A stream sends states, not events: when the feed says that an object changed, the stream reads it as it is now. So
// it may leave states out that were replaced at once, and a receiver keeps the highest version (M31). One Reader
// reads the feed for all streams of a server.
package watch
