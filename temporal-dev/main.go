// Command temporal-dev is a whole Holdfast region on a laptop: Temporal with its Web, Postgres, the server and the
// nodes of two sites. Each is a child process that can be killed, stopped and started separately. It runs on Linux.
//
//	temporal-dev [flags]           starts the region and runs until it is interrupted
//	temporal-dev ps                lists its processes
//	temporal-dev stop NAME         stops one and keeps it stopped
//	temporal-dev start NAME        starts it again
//	temporal-dev cut A B           cuts the link between two regions (with --one-way from A to B only)
//	temporal-dev heal A B          heals it
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	if child, ok := childNamed(args); ok {
		return runChild(child, stderr)
	}
	verb, rest := verbOf(args)
	var err error
	switch verb {
	case "up":
		err = up(rest, stdout, stderr)
	case "ps", "stop", "start":
		err = steer(verb, rest, stdout, stderr)
	case "cut", "heal":
		err = steerLink(verb, rest, stdout, stderr)
	default:
		err = usageError{fmt.Errorf("unknown command %.40q; use ps, stop NAME, start NAME, cut A B or heal A B", verb)}
	}
	return exitCode(err, stderr)
}

// verbOf finds the verb, either first or after the data directory.
func verbOf(args []string) (verb string, rest []string) {
	at := 0
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch name, _, valued := strings.Cut(strings.TrimLeft(args[0], "-"), "="); {
		case name == "data" && valued:
			at = 1
		case name == "data":
			at = 2
		}
		if at == 0 || len(args) <= at || !slices.Contains([]string{"ps", "stop", "start", "cut", "heal"}, args[at]) {
			return "up", args
		}
	}
	if len(args) <= at || args[at] == "" {
		return "up", args
	}
	return args[at], append(slices.Clone(args[:at]), args[at+1:]...)
}

// usageError is an error on the command line, which has its own exit code.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func exitCode(err error, stderr io.Writer) int {
	switch usage := (usageError{}); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintln(stderr, "temporal-dev:", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintln(stderr, "temporal-dev:", err)
		return exitFailed
	}
}

// up runs a region until it is interrupted; a second interrupt skips the clean stop.
func up(args []string, stdout, stderr io.Writer) error {
	opts, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hurry := make(chan struct{})
	go func() {
		<-signals
		cancel()
		<-signals
		close(hurry)
	}()
	return runRegion(ctx, opts, output{progress: stdout, trouble: stderr, hurry: hurry})
}
