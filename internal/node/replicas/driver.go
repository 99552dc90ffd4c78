package replicas

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// Driver runs replicas on this machine. An error of Prepare or Start that is the replica's own is a Failure.
// The interface is large because each method differs between the two ways to run a program. Methods may be
// called concurrently, but for one replica one after the other (except Output and Usage). All but Start are
// safe to repeat.
type Driver interface {
	// List gives all replicas that run here, or ended and were not removed, also those of earlier agents.
	List(ctx context.Context) ([]Found, error)
	// Prepare fetches what a start needs, for example the image. It may take long.
	Prepare(ctx context.Context, l Launch) error
	// Start runs a replica of which nothing runs, and returns once it runs. If the context ends first, nothing
	// stays running.
	Start(ctx context.Context, l Launch) (Found, error)
	// Look gives the current state of a replica.
	Look(ctx context.Context, id fleet.ReplicaID) (Found, error)
	// Await returns when nothing of a replica runs any more, and gives its exit; at once when nothing runs.
	Await(ctx context.Context, id fleet.ReplicaID) (Exit, error)
	// Stop ends a replica: with a signal first, by force after a time, 0 for the stop time that it was started with.
	// Only its output stays.
	Stop(ctx context.Context, id fleet.ReplicaID, within time.Duration) error
	// Remove deletes all that is left of a stopped replica, including its output.
	Remove(ctx context.Context, id fleet.ReplicaID) error
	// Output reads a replica's output from an offset. Data is empty at the end.
	Output(ctx context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error)
	// Usage measures all running replicas.
	Usage(ctx context.Context) (map[fleet.ReplicaID]Usage, error)
}

// before is a driver whose Start does not run the preStart commands: they run in RunBefore, after Prepare.
type before interface {
	RunBefore(ctx context.Context, l Launch) error
}

// ContainerDir is the replica's directory inside its container.
const ContainerDir = "/holdfast"

// Launch is what a driver needs to start a replica.
type Launch struct {
	ID         fleet.ReplicaID
	Node       fleet.NodeName
	Definition fleet.Hash
	Project    fleet.ProjectName
	Epoch      int64
	// Process is expanded: its names are replaced. A driver ignores its Env and Files: Env below is the whole
	// environment, and the files are in Dir.
	Process   fleet.Process
	Resources fleet.Resources
	// GPUs are the numbers of the replica's GPUs, as many as Resources requests.
	GPUs []int
	// Base is the environment of programs of this machine, in addition to Env; containers do not get it.
	Base, Env []string
	// Dir is the working directory; Config the path below it in HOLDFAST_CONFIG, "" for none.
	Dir, Config string
	Ports       []fleet.ProcessPort
	// OutputFrom is the offset of the first byte of output if no earlier output is kept.
	OutputFrom int64
}

// Found is the state of a replica as its driver knows it.
type Found struct {
	ID      fleet.ReplicaID
	Running bool
	PID     int
	// Preparing is set while one of the commands before the program runs.
	Preparing bool
}

// Exit is how a replica ended: a stable reason and a sentence. It is zero for a replica that was stopped, or
// whose end is unknown.
type Exit struct{ Reason, Message string }

// Usage is the resources that a replica uses.
type Usage struct {
	// CPU is the CPU time used so far, in seconds; it never decreases while the replica runs.
	CPU float64
	// Memory is bytes.
	Memory int64
}

// Failure is why a replica cannot run: a stable reason, and an error for people.
type Failure struct {
	Reason string
	Err    error
}

// Error is the text of Err.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives Err.
func (f *Failure) Unwrap() error { return f.Err }
