// Holdfast puts configurations on machines at many sites and keeps them there: this is
// its command line, and the program of its processes.
package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-io/holdfast/internal/guardian"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardian.Command {
		os.Exit(guardian.Main(context.Background(), os.Args[2:])) // a small process: nothing of the CLI is set up
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, process{
		args: os.Args[1:], env: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		width: terminalWidth, now: time.Now, poll: time.Second,
	})
	stop()
	os.Exit(code)
}

// process is all that the command line gets from outside, so that tests can stand in.
type process struct {
	args           []string
	env            func(name string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	// width is the width of the terminal behind a writer, 0 when it is none.
	width func(io.Writer) int
	now   func() time.Time
	// poll is how often what is watched or waited for is looked at.
	poll time.Duration
}

// run carries out one command line and gives its exit code.
func run(ctx context.Context, p process) int {
	c := &cli{process: p}
	root := newRootCommand(c)
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	if c.cancel != nil {
		c.cancel()
	}
	if err != nil && !c.started && !errors.As(err, new(*usageError)) {
		err = &usageError{err} // cobra found the fault before any command began
	}
	if err != nil {
		c.complain(err)
	}
	return exitCodeOf(err)
}

// unknownWidth is that of a terminal that does not know its own, as a serial line.
const unknownWidth = 80

func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cmp.Or(width, unknownWidth)
}
