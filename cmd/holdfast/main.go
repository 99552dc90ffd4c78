// Holdfast puts configurations on machines at many sites and keeps them there. This is its command line, and the
// program of its processes.
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

	_ "github.com/holdfast-io/holdfast/internal/demo/entry"
	"github.com/holdfast-io/holdfast/internal/fleet"
	_ "github.com/holdfast-io/holdfast/internal/guardian/entry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, process{
		args: os.Args[1:], env: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		width: terminalWidth, now: time.Now, poll: time.Second, declared: fleet.DeclaredKinds(),
	})
	stop()
	os.Exit(code)
}

// process is everything that the command line gets from outside, so that tests can replace it.
type process struct {
	args           []string
	env            func(name string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	// width is the width of the terminal behind a writer, 0 if it is not a terminal.
	width func(io.Writer) int
	now   func() time.Time
	// poll is how often to check what is watched or waited for.
	poll time.Duration
	// declared are the kinds that can be declared, in the order of an apply.
	declared fleet.KindTable
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, p process) int {
	c := &cli{process: p, kinds: declaredKinds(p.declared)}
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
		err = &usageError{err} // cobra found the error before any command ran
	}
	if err != nil {
		c.complain(err)
	}
	return exitCodeOf(err)
}

// unknownWidth is for a terminal that does not know its width, such as a serial line.
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
