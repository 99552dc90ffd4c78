package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/provider"
)

// A provider with one module, which ends when it is interrupted or has been drained.
func Example() {
	ctx := context.Background() // ends on a signal in a real program
	executor, err := provider.NewExecutor(provider.ExecutorOptions{
		Modules: []provider.Module{{
			Name: "shout", Description: "Makes a text loud.",
			InputSchema: `{"type":"string"}`, OutputSchema: `{"type":"string"}`,
			Handle: func(_ context.Context, input []byte) ([]byte, error) { return bytes.ToUpper(input), nil },
		}},
		MaxInFlight: 16,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	link, err := provider.New(provider.Options{
		Address: "127.0.0.1:1", Insecure: true, // a real region's, with TLS
		Name: "shout-1", ModuleNamespace: "acme.text", ExecutorAddress: listener.Addr().String(), Executor: executor,
		Token:                func(context.Context) (string, error) { return "the provider's token", nil },
		MaxReconnectAttempts: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	serving, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- executor.Serve(serving, listener) }()

	err = link.Run(ctx)
	end() // after the link: the region sends nothing any more
	var drained *provider.DrainedError
	switch {
	case err == nil, errors.As(err, &drained):
		fmt.Println("done")
	case errors.Is(err, provider.ErrUnreachable):
		fmt.Println(provider.ErrUnreachable)
	default:
		fmt.Println(err)
	}
	if err := <-served; err != nil {
		fmt.Println(err)
	}
	// Output: the region is permanently unreachable
}

// A provider without modules: it is told when there is work to ask for, and a drain waits for
// what it counts itself.
func ExampleInstanceConnection() {
	work := make(chan struct{}, 1)
	link, err := provider.New(provider.Options{
		Address: "region.example:9090", Name: "press-7",
		Token:    func(context.Context) (string, error) { return "signed anew each time", nil },
		InFlight: func() int { return len(work) },
		OnWake: func() {
			select {
			case work <- struct{}{}:
			default:
			}
		},
		OnState:              func(s provider.Status) { fmt.Fprintln(os.Stderr, s.State, s.Err) },
		MaxReconnectAttempts: -1,   // a machine has nobody who would start it again
		Rejoin:               true, // and comes back after a drain
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(link.Status().State)
	// link.Run(ctx) connects.
	// Output: Closed
}

// oneReplica is a node's feed with a single replica that never changes.
type oneReplica struct{ sequence uint64 }

// Next tells of it once on each stream, and then waits for the stream's end.
func (f *oneReplica) Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error) {
	if !complete {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.sequence++
	return &nodev1.ReplicasReport{Sequence: f.sequence, Complete: true, Replicas: []*nodev1.ReplicaStatus{
		{Id: "0123456789ab", Phase: "running", Health: "HEALTHY", Endpoint: "10.0.0.7:8000"},
	}}, nil
}

// Acked would let what was told be forgotten.
func (f *oneReplica) Acked(uint64) {}

// A node that runs replicas: it says what its machine has, hears which version of its set of
// replicas it should have, and tells what became of them.
func ExampleReplicaFeed() {
	link, err := provider.New(provider.Options{
		Address: "region.example:9090", Name: "press-7",
		Token:        func(context.Context) (string, error) { return "signed anew each time", nil },
		NodeFacts:    &nodev1.NodeFacts{Address: "10.0.0.7", Drivers: []string{"process"}, Cpu: 4, Memory: 8 << 30},
		Replicas:     &oneReplica{},
		OnReplicaSet: func(era, version int64) { fmt.Fprintln(os.Stderr, "fetch set", era, version) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(link.Status().State)
	// link.Run(ctx) connects.
	// Output: Closed
}
