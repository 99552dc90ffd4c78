//go:build slow

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// zonesVariable is where Go looks for time zones first.
	zonesVariable = "ZONEINFO"
	// toStage is the time that a busy machine gets to stage a few instances before a window opens.
	toStage = 45 * time.Second
)

// zones makes a folder of time zones that are 0 to 59 seconds ahead of UTC. The times of a window are
// whole minutes, so that a test would wait for the next one; in one of these zones it begins when the
// test wants.
func zones(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for ahead := range 60 {
		path := filepath.Join(dir, zoneAhead(ahead))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, zoneFile(ahead), 0o600))
	}
	return dir
}

func zoneAhead(seconds int) string { return fmt.Sprintf("Ahead/%d", seconds) }

// zoneFile is a zone of one offset without transitions, as RFC 8536 has it.
func zoneFile(ahead int) []byte {
	const types, name = 1, "AHEAD\x00"
	file := append([]byte("TZif"), make([]byte, 16)...) // version 1
	for _, count := range []int{0, 0, 0, 0, types, len(name)} {
		file = binary.BigEndian.AppendUint32(file, uint32(count))
	}
	file = binary.BigEndian.AppendUint32(file, uint32(ahead))
	return append(append(file, 0, 0), name...) // no daylight saving; the name is the first
}

// opening gives a window of an hour that opens after a time, to the second.
func opening(after time.Duration) (opens time.Time, w fleet.Window) {
	opens = time.Now().Add(after).Truncate(time.Second)
	ahead := (60 - opens.Second()) % 60
	local := opens.UTC().Add(time.Duration(ahead) * time.Second)
	const clock = "15:04"
	return opens, fleet.Window{From: local.Format(clock), To: local.Add(time.Hour).Format(clock), Zone: zoneAhead(ahead)}
}
