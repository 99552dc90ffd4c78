package tenure_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/guardian"
	_ "github.com/holdfast-io/holdfast/internal/guardian/entry" // the test binary is a guardian too
	"github.com/holdfast-io/holdfast/internal/testkit/waits"
)

// TestMain makes the test binary an instance too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "witness" {
		syscall.Exit(witness(os.Args[2]))
	}
	waits.Parallel()
	goleak.VerifyTestMain(m)
}

// witness is an instance that writes down who it is and when it ran.
func witness(file string) int {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 1
	}
	who, epoch := os.Getenv("HOLDFAST_NODE"), os.Getenv("HOLDFAST_EPOCH") //nolint:forbidigo // what an instance is told
	for range time.Tick(5 * time.Millisecond) {
		_, err := fmt.Fprintf(out, "%s %s %d\n", who, epoch, guardian.SinceBoot())
		if err != nil {
			return 1
		}
	}
	return 0
}
