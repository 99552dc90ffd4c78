package api

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Memory{
		`0`: 0, `1024`: 1024, `"512Mi"`: 512 << 20, `"1.5Gi"`: 3 << 29, `"2k"`: 2000, `"3M"`: 3e6, `"1G"`: 1e9, `"1Ti"`: 1 << 40, `"77"`: 77, `"1Ki"`: 1024,
	} {
		var m Memory
		require.NoError(t, json.Unmarshal([]byte(text), &m), text)
		require.Equal(t, want, m, text)
	}
	for _, text := range []string{`-1`, `"-1Mi"`, `"Mi"`, `""`, `"1e3"`, `true`, `{}`, `1.5`, `"1 Gi"`, `"1.2.3"`, `"99999999Ti"`, `"1KiB"`, `null`} {
		var m Memory
		err := json.Unmarshal([]byte(text), &m)
		if text == "null" {
			require.NoError(t, err, "null says the same as leaving it out")
			continue
		}
		var e *fleet.Error
		require.True(t, errors.As(err, &e), text)
		require.Contains(t, e.Hint, "512Mi")
	}
}
