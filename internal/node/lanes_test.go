package node

import (
	"context"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/guardian"
)

// TestMain makes the test binary a guardian too. Every fetch, job and loop of these tests must
// have ended with its test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardian.Command {
		// Not os.Exit: a binary with the race detector would stay for another second.
		syscall.Exit(guardian.Main(context.Background(), os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
