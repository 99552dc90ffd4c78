package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestDataDir(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, path string) *dataDir {
		t.Helper()
		d, err := openDataDir(path)
		require.NoError(t, err)
		t.Cleanup(d.close)
		return d
	}
	t.Run("is made when it is missing, for its owner only", func(t *testing.T) {
		t.Parallel()
		d := claim(t, filepath.Join(t.TempDir(), "a", "b"))
		info, err := os.Stat(d.path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	})
	t.Run("is refused and left as it is when it belongs to something else", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("x"), 0o644))
		require.NoError(t, os.Chmod(dir, 0o755))
		_, err := openDataDir(dir)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
		require.ErrorContains(t, err, "does not contain a Holdfast region")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	})
	t.Run("is refused when it is a file, another product's or of a later format", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			`{"product":"other","format":1}`: "does not contain a Holdfast region",
			`not json`:                       "does not contain a Holdfast region",
			`{"product":"holdfast temporal-dev","format":2}`: "format 2",
		} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, markerFile), []byte(text), 0o600))
			_, err := openDataDir(dir)
			require.ErrorContains(t, err, want)
			_, err = openDataDir(filepath.Join(dir, markerFile))
			require.ErrorContains(t, err, "not a directory")
		}
	})
	t.Run("of one region is refused for several, and the other way round", func(t *testing.T) {
		t.Parallel()
		for _, row := range []struct {
			file        string
			fits, other int
		}{{stateFile, 1, 3}, {filepath.Join("eu", markerFile), 3, 1}, {filepath.Join("eu", markerFile), 2, 1}} {
			dir := t.TempDir()
			require.NoError(t, checkRegions(dir, row.other), "a first start")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "eu"), 0o700))
			require.NoError(t, writeJSON(filepath.Join(dir, markerFile), ownMarker))
			require.NoError(t, os.WriteFile(filepath.Join(dir, row.file), []byte("{}"), 0o600))
			require.NoError(t, checkRegions(dir, row.fits))
			err := runRegion(t.Context(), options{data: dir, regions: row.other}, output{})
			require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
			require.ErrorContains(t, err, "has the data of")
		}
	})
	t.Run("is refused while a region runs on it, and free after that", func(t *testing.T) {
		t.Parallel()
		d, err := openDataDir(t.TempDir())
		require.NoError(t, err)
		_, err = openDataDir(d.path)
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		require.ErrorContains(t, err, "already running")
		d.close()
		claim(t, d.path)
	})
	t.Run("keeps its secrets, readable by the owner only", func(t *testing.T) {
		t.Parallel()
		d := claim(t, t.TempDir())
		first, err := d.secret(tokenFile)
		require.NoError(t, err)
		require.Len(t, first, 2*secretBytes)
		again, err := d.secret(tokenFile)
		require.NoError(t, err)
		require.Equal(t, first, again)
		other, err := d.secret(passwordFile)
		require.NoError(t, err)
		require.NotEqual(t, first, other)
		info, err := os.Stat(d.file(tokenFile))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
}
