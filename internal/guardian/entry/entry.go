// Package entry makes a program that imports it the guardian, if it is started as one. It does so while the program's
// packages are still being initialized: Go initializes them in the order of their import paths, each after what it
// imports (https://go.dev/ref/spec#Program_initialization), so most of those that a guardian does not need never are.
// There is a guardian for each replica, so their time and memory count.
package entry

import (
	"context"
	"os"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/guardian"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == guardian.Command {
		// Not os.Exit: a binary with the race detector would stay for another second.
		syscall.Exit(guardian.Main(context.Background(), os.Args[2:]))
	}
}
