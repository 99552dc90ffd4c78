package node

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/holdfast-io/holdfast/internal/guardian/entry" // the test binary is a guardian too
)

// TestMain checks that every fetch, job and loop of these tests has ended with its test.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
