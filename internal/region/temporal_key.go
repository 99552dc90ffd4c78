package region

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	keyLookEvery = time.Second // calls are many
	keyMost      = 16 << 10
)

// apiKey is a file with a Temporal API key. It is reread regularly, so that a key rotates without a restart; while
// it is invalid, the last good one stays in use.
type apiKey struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	good   string
	looked time.Time
	broken bool // already logged
}

func openAPIKey(path string, now func() time.Time, log *slog.Logger) (*apiKey, error) {
	k := &apiKey{path: path, now: now, log: log, looked: now()}
	var err error
	k.good, err = readAPIKey(path)
	return k, err
}

// current is the key for one call.
func (k *apiKey) current(context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); now.Sub(k.looked) >= keyLookEvery {
		k.looked = now
		k.look()
	}
	return k.good, nil
}

func (k *apiKey) look() {
	fresh, err := readAPIKey(k.path)
	switch {
	case err != nil && !k.broken:
		k.log.Error("the new Temporal API key is invalid; keeping the old one", "file", k.path, "error", err)
	case err == nil && fresh != k.good:
		k.good = fresh
		k.log.Info("using the new Temporal API key", "file", k.path)
	}
	k.broken = err != nil
}

// readAPIKey never shows what it read: a wrong file may contain another secret.
func readAPIKey(path string) (string, error) {
	const hint = "give a file that contains only the key, on one line"
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fleet.Errorf(fleet.Invalid, "read --temporal-api-key-file: %w", err).WithHint(hint)
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, keyMost+1))
	if err != nil {
		return "", fleet.Errorf(fleet.Invalid, "read --temporal-api-key-file: %w", err).WithHint(hint)
	}
	key := bytes.TrimSpace(raw)
	odd := func(r rune) bool { return r <= ' ' || r > '~' } // not allowed in a header, or more than one line
	switch {
	case len(key) == 0:
		return "", fleet.Errorf(fleet.Invalid, "--temporal-api-key-file %s is empty", path).WithHint(hint)
	case len(raw) > keyMost || bytes.ContainsFunc(key, odd):
		return "", fleet.Errorf(fleet.Invalid, "--temporal-api-key-file %s contains no valid key", path).WithHint(hint)
	}
	return string(key), nil
}
