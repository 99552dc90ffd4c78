package testkit

import (
	"os"
	"testing"
)

// Dir is a directory that goes with the test, in memory where there is room: a node syncs every
// vote, and a disk that all tests of a machine share may hold it up for longer than a lease lasts.
func Dir(t testing.TB) string {
	t.Helper()
	parent := inMemory()
	if parent == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "holdfast-test-")
	if err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the directory of the test: %v", err)
		}
	})
	return dir
}
