// Package demo is a small HTTP server to deploy: it says which revision and replica it is, and on request it delays,
// fails its check, uses CPU and exits. It is part of every binary that runs nodes, so each node can run it.
package demo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// Command is the first argument that makes a binary this server.
const Command = "demo"

// Usage is its help, to be followed by its flags.
const Usage = `Run a small HTTP server to try deployments with. It is for demonstrations and tests: anybody who reaches
it can make it fail.

  deployment:  command: [holdfast, demo]

Every node finds this program, wherever it is installed. The server listens on $PORT, which a node sets.

  GET /                       which replica and revision it is, from the HOLDFAST_ variables, and the
                              hash of its configuration, with its "message" if it is JSON and has one
  GET /health                 200, or 503 while the check fails
  GET /fail?for=30s           the check fails, for this time or until /recover
  GET /recover                the check passes again
  GET /delay?for=2s           answers after this time
  GET /burn?for=2s&cores=1    answers after it kept these cores busy for this time
  GET /exit?code=3            ends the process with this exit code (default 1)

SIGTERM ends it with exit code 0 once it has answered what it received. With flags a release fails by
itself.
`

// Exit codes of the server.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// Process is everything that the server gets from outside.
type Process struct {
	Args           []string // after Command
	Env            func(name string) string
	Now            func() time.Time
	Stdout, Stderr io.Writer
}

// Options are what the flags set.
type Options struct {
	listen                        string
	startAfter, failAfter, exitIn time.Duration
	exitCode                      int
	quiet                         bool
}

// Flags are the flags of the server.
func (o *Options) Flags(env func(string) string) *flag.FlagSet {
	f := flag.NewFlagSet("holdfast "+Command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.listen, "listen", ":"+cmp.Or(env("PORT"), "8080"), "address to listen on")
	f.DurationVar(&o.startAfter, "start-after", 0, "listen only after this time")
	f.DurationVar(&o.failAfter, "fail-after", 0, "let the check fail from this time on")
	f.DurationVar(&o.exitIn, "exit-after", 0, "exit after this time")
	f.IntVar(&o.exitCode, "exit-code", exitFailed, "exit code of --exit-after")
	f.BoolVar(&o.quiet, "quiet", false, "do not print requests")
	return f
}

func (p Process) options() (Options, error) {
	var o Options
	f := o.Flags(p.Env)
	err := f.Parse(p.Args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(p.Stdout)
		_, _ = fmt.Fprint(p.Stdout, Usage, "\nFlags:\n")
		f.PrintDefaults()
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return o, err
}

// Main reads the arguments, runs the server until something ends it, and gives the exit code.
func (p Process) Main(ctx context.Context) int {
	o, err := p.options()
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(p.Stderr, "holdfast demo: %v; see \"holdfast demo --help\"\n", err)
		return exitUsage
	}
	return p.Run(ctx, o)
}

// Run is Main without arguments.
func (p Process) Run(ctx context.Context, o Options) int {
	code, err := newServer(p, o).run(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(p.Stderr, "holdfast demo:", err)
	}
	return code
}

// run serves until the context, a request or a flag ends it.
func (s *server) run(ctx context.Context) (int, error) {
	over, end := context.WithCancel(ctx)
	defer end()
	if s.options.exitIn > 0 {
		go func() {
			if pause.For(over, s.options.exitIn) == nil {
				s.exit(s.options.exitCode)
			}
		}()
	}
	if s.options.failAfter > 0 {
		s.failBetween(s.now().Add(s.options.failAfter), time.Time{})
	}
	select {
	case code := <-s.exits:
		return code, nil
	case <-ctx.Done():
		return exitOK, nil
	case <-s.started(over):
	}
	listener, err := (&net.ListenConfig{}).Listen(over, "tcp", s.options.listen)
	if err != nil {
		return exitFailed, err
	}
	s.say("%s listens on %s", s.whoami(), listener.Addr())
	return s.serve(ctx, listener)
}

func (s *server) started(ctx context.Context) <-chan struct{} {
	started := make(chan struct{})
	go func() {
		if pause.For(ctx, s.options.startAfter) == nil {
			close(started)
		}
	}()
	return started
}

const headerTimeout = 10 * time.Second

func (s *server) serve(ctx context.Context, listener net.Listener) (int, error) {
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case code := <-s.exits:
		s.say("exits with code %d", code)
		return code, nil
	case err := <-ended:
		return exitFailed, err
	case <-ctx.Done():
	}
	s.say("stops: it finishes %d requests", s.inFlight.Load())
	if err := web.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return exitFailed, fmt.Errorf("stop: %w", err)
	}
	return exitOK, nil
}
