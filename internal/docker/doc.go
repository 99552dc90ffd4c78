// Package docker runs replicas as containers, over the Engine API on a unix socket.
//
// The engine owns what runs: a container is found again by its labels (holdfast.replica, holdfast.node) and its
// name, outlives the agent, and keeps its output. One that has only the labels or only the name is another
// program's, and is left alone. The engine never restarts it: the node reports its exit. A restart
// starts the same container again, so that its output continues; a change of its ports needs a new container.
//
// Ports are published under the number that the program listens on, which is in PORT, so clients and probes
// reach it at the node's address like any other replica. Its files are mounted at /holdfast; its working
// directory is the image's own. Commands before the start run in their own containers, before each start of the
// program; the output of a failed one is the replica's output.
//
// The engine has no offsets of output. The driver counts bytes: each container continues at the offset where
// the one before it ended, and the driver reads on from the time of the last piece that was sent, which is in a
// file for the next agent. Pieces with an earlier time than the one before are distinguished by their number;
// engines before API version 1.43 return them only together with the pieces that they belong to. If the engine
// has rotated unread output away, or cannot read it, some is skipped, and counted as skipped unless nothing of
// the container was read before. For a container that prints nothing the driver requests only its last piece,
// and for one that has ended nothing more.
//
// A container's stop time counts from the first stop request, however often the engine was unreachable; the
// next request after it kills the container.
//
// The driver negotiates the API version with the engine. Every call except a wait has a time limit, after which
// the engine counts as unreachable; it may come back, and be another engine then.
package docker
