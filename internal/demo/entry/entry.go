// Package entry makes a program that imports it the demo server, if it is started as one. It does so while the program's
// packages are still being initialized, as the entry of guardians does: a replica of the demo then needs neither the
// time nor the memory of the packages that it does not use.
package entry

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/demo"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == demo.Command {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		// Not os.Exit: a binary with the race detector would stay for another second.
		syscall.Exit(demo.Process{
			Args: os.Args[2:], Env: os.Getenv, Now: time.Now, Stdout: os.Stdout, Stderr: os.Stderr,
		}.Main(ctx))
	}
}
