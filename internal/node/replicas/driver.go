package replicas

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// Driver runs replicas on this machine. Errors of Prepare and Start that are the replica's own are a
// Failure. It has more methods than one would like: each is one thing
// that the two ways to run a program do differently. All may be called at once, those of one replica
// one after the other (Output and Usage aside); all but Start are safe to repeat.
type Driver interface {
	// List gives all that there is of replicas here, also of earlier agents: those that run, and
	// those that ended and were not removed.
	List(ctx context.Context) ([]Found, error)
	// Prepare has there what a start needs, the image for example, which may take long.
	Prepare(ctx context.Context, l Launch) error
	// Start runs a replica of which nothing runs, and returns once it does. When the context ends first, nothing is left running.
	Start(ctx context.Context, l Launch) (Found, error)
	// Look says what there is of a replica now.
	Look(ctx context.Context, id fleet.ReplicaID) (Found, error)
	// Await returns when nothing of a replica runs any more, and says how it ended; at once when
	// nothing runs.
	Await(ctx context.Context, id fleet.ReplicaID) (Exit, error)
	// Stop ends a replica: politely, after its time by force; nothing but its output is left then.
	Stop(ctx context.Context, id fleet.ReplicaID) error
	// Remove deletes what is left of one that was stopped, output included.
	Remove(ctx context.Context, id fleet.ReplicaID) error
	// Output reads what a replica printed, from an offset on. Data is empty at the end.
	Output(ctx context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error)
	// Usage measures all that run.
	Usage(ctx context.Context) (map[fleet.ReplicaID]Usage, error)
}

// ContainerDir is where a replica in a container finds its directory.
const ContainerDir = "/holdfast"

// Launch is all that a driver needs to start a replica.
type Launch struct {
	ID         fleet.ReplicaID
	Node       fleet.NodeName
	Definition fleet.Hash
	Project    fleet.ProjectName
	Epoch      int64
	// Process has its names replaced. Its Env and Files are not for the driver: Env below is the
	// whole environment, and the files are in Dir.
	Process   fleet.Process
	Resources fleet.Resources
	// GPUs are the numbers of those that are its own: as many as Resources asks for.
	GPUs []int
	// Base is what a program of this machine finds beside Env; one in a container does not.
	Base, Env []string
	// Dir is the working directory; Config the path below it that HOLDFAST_CONFIG names, "" for none.
	Dir, Config string
	Ports       []fleet.ProcessPort
	// OutputFrom is the offset of the first byte of output where none is kept.
	OutputFrom int64
}

// Found is what a driver says of a replica.
type Found struct {
	ID      fleet.ReplicaID
	Running bool
	PID     int
	// Preparing says that one of the commands before the program runs, and not yet the program.
	Preparing bool
}

// Exit says how a replica ended: a stable reason and a sentence. The zero Exit is of one that was
// told to end, or of which nothing is known.
type Exit struct{ Reason, Message string }

// Usage is what a replica takes of its machine.
type Usage struct {
	// CPU is the time that it used so far, in seconds; it never falls while it runs.
	CPU float64
	// Memory is bytes.
	Memory int64
}

// Failure is why a replica cannot be run: a stable reason, and an error that says it to people.
type Failure struct {
	Reason string
	Err    error
}

// Error is that of Err.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives Err.
func (f *Failure) Unwrap() error { return f.Err }
