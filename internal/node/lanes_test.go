package node

import (
	"testing"

	"go.uber.org/goleak"
)

// Every fetch, job and loop of these tests must have ended with its test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
