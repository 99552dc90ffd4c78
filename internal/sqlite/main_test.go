package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMain opens a store before any test does: a transaction that stays open keeps the only connection, and every
// test would wait for it until the test binary is killed.
func TestMain(m *testing.M) {
	opened := make(chan error, 1)
	go func() { opened <- openOnce() }()
	select {
	case err := <-opened:
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case <-time.After(time.Minute):
		fmt.Fprintln(os.Stderr, "Open does not end")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func openOnce() error {
	dir, err := os.MkdirTemp("", "node-store-*")
	if err != nil {
		return err
	}
	s, err := Open(context.Background(), filepath.Join(dir, "node.db"))
	if err == nil {
		err = s.Close()
	}
	return errors.Join(err, os.RemoveAll(dir))
}
