// Package docker runs replicas as containers, over the Engine API on a unix socket.
//
// The engine owns what runs: a container is found again by its labels (holdfast.replica,
// holdfast.node), outlives the agent, and keeps its output. It is never restarted by the engine: an
// exit is the node's to tell. A container that is started again in its place is the same one, so that
// its output goes on; it is made anew when its ports changed.
//
// Ports are published under the number that the program listens on, which it finds in PORT, so that
// it is reached and probed at the node's address like any other replica. Its files are mounted at
// /holdfast; its working directory is the image's own. Commands before the start run in containers of
// their own, before each start of the program; the output of one that fails is the replica's.
//
// Output has no offsets in the engine. The driver counts bytes: each container goes on where the one before
// it was left, and is read on by time from what was taken in last, which is kept in a file for the next
// agent. Pieces that come with an earlier time than what was read are told apart by their number; engines
// before API version 1.43 give them only together with what they belong to. Where the engine has rotated
// away what was not read yet, or cannot read it, some is skipped, and counted as such unless nothing of the
// container was read before. A container that prints nothing is asked for its last piece only, and one that
// has ended for nothing more.
//
// A container has its own time to stop since it was first told to, however often the engine was away
// meanwhile, and is killed when it is asked again after that.
//
// The version of the API is agreed on with the engine. Every call but a wait has its time, after which
// the engine counts as away; it may come back, and be another one then.
package docker
