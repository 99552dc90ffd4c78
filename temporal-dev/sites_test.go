package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	nodekeys "github.com/holdfast-io/holdfast/internal/identity"
)

func TestJoinToken(t *testing.T) {
	t.Parallel()
	const node = "plant-1-a"
	key, err := nodekeys.Generate(node)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		keep func(path string) error
		want string
	}{
		"is for a node without a key":                     {func(string) error { return nil }, "join-me"},
		"is for a node that ended before it was enrolled": {key.Save, "join-me"},
		"is not for a node that is enrolled":              {key.Enrolled(regionName).Save, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			region := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusCreated, map[string]string{"token": "join-me"})
			}))
			t.Cleanup(region.Close)
			d, err := openDataDir(t.TempDir())
			require.NoError(t, err)
			t.Cleanup(d.close)
			path := d.file("nodes", node, "node.key")
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, c.keep(path))
			token, err := newClient(region.URL, "t", nil).joinToken(t.Context(), d, "plant-1", node)
			require.NoError(t, err)
			require.Equal(t, c.want, token)
		})
	}
}
