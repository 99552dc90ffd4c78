//go:build slow

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// largeVariable has the tests send a gigabyte too, which takes minutes.
const largeVariable = "HOLDFAST_E2E_LARGE"

const sizesMarker = "e2e-marker-that-is-in-every-config"

// jsonConfig is a config of about a size, in canonical form already, so that its hash is
// known without the product: strings of random text, and a marker to look for.
func jsonConfig(size int, marker string) json.RawMessage {
	random := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16), 1})
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, `{"lines":["%s"`, marker)
	line := make([]byte, 60)
	for b.Len() < size-2 {
		_, _ = random.Read(line)
		_, _ = fmt.Fprintf(&b, `,"%s"`, base64.URLEncoding.EncodeToString(line)[:min(80, max(1, size-b.Len()-5))])
	}
	b.WriteString("]}")
	return b.Bytes()
}

// artifactFile is a file of random bytes, others for each seed, with its hash.
func artifactFile(t *testing.T, size int64, seed byte) (*os.File, fleet.Hash) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "artifact"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{2, seed}), size)
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	hash, n, err := api.HashOf(f)
	require.NoError(t, err)
	require.Equal(t, size, n)
	return f, hash
}

// N1, N2, N3, N4, N5, N6, N9, N10, N75, N76, N82, N104, N106, X9, X10, X11
func (s *stack) takesAnySize(t *testing.T) {
	const site = "plant-1"
	var parts []part
	for name, size := range map[string]int{
		"json-200": 200, "json-70k": 70 << 10, "json-130k": 130 << 10, "json-3m": 3 << 20, "json-40m": 40 << 20,
	} {
		parts = append(parts, part{name, func(t *testing.T) {
			config := jsonConfig(size, sizesMarker)
			require.InDelta(t, size, len(config), 10)
			key := instanceKey(site, name)
			requireSucceeded(t, s.ended(t, s.put(t, key, api.InstancePut{Config: config}).ID))
			require.EqualValues(t, 1, s.held(t, key, hashOf(config)))
			s.activeFile(t, key, "config.json", hashOf(config))
			require.NoFileExists(t, s.configFile(s.standby(t, site), name, "config.json"), "a standby persists in its store only")
		}})
	}
	sizes := map[string]int64{"artifact-1": 1, "artifact-40m": 40 << 20}
	if os.Getenv(largeVariable) != "" {
		sizes["artifact-1g"] = 1 << 30
	}
	for name, size := range sizes {
		parts = append(parts, part{name, func(t *testing.T) {
			file, hash := artifactFile(t, size, 0)
			uploaded, err := s.api.UploadArtifact(t.Context(), api.Upload{Body: file, Size: size})
			require.NoError(t, err)
			require.Equal(t, hash, uploaded.SHA256)
			key := instanceKey(site, name)
			requireSucceeded(t, s.ended(t, s.put(t, key, api.InstancePut{Artifact: hash}).ID))
			require.EqualValues(t, 1, s.held(t, key, string(hash)))
			file, err = os.Open(s.configFile(s.holder(t, site), name, "config.bin"))
			require.NoError(t, err)
			defer func() { _ = file.Close() }()
			written, _, err := api.HashOf(file)
			require.NoError(t, err)
			require.Equal(t, hash, written)
		}})
	}
	t.Run("configs and artifacts of any size reach both nodes", func(t *testing.T) { together(t, parts) })
	t.Run("while no node speaks to the region's database, nor could it", func(t *testing.T) {
		port := s.pg.Config().ConnConfig.Port
		require.True(t, s.speaksTo(t, serverName, port), "this is how it looks")
		password, err := os.ReadFile(filepath.Join(s.data, passwordFile))
		require.NoError(t, err)
		for _, node := range pair(site) {
			require.False(t, s.speaksTo(t, node, port), node)
			environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.pid(t, node)))
			require.NoError(t, err)
			require.NotContains(t, string(environment), strings.TrimSpace(string(password)), node)
		}
	})
	t.Run("and leave nothing of them in Temporal, logs, metrics or other tables", func(t *testing.T) {
		s.settled(t)
		runs := s.histories(t)
		requireSmall(t, runs)
		tokens := s.fetchTokens(t, runs)
		require.GreaterOrEqual(t, len(tokens), 2*(7+1), "one for each node and delivery, bad input's instance too")
		s.requireNowhere(t, runs, append(tokens, sizesMarker, s.doc.Token)...)
		require.NotContains(t, s.metrics(t), sizesMarker)
	})
}

// speaksTo says whether a child has a connection to a local port.
func (s *stack) speaksTo(t *testing.T, process string, port uint16) bool {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", s.pid(t, process))
	table, err := os.ReadFile(proc + "/net/tcp")
	require.NoError(t, err)
	own := map[string]bool{}
	files, err := os.ReadDir(proc + "/fd")
	require.NoError(t, err)
	for _, f := range files {
		target, _ := os.Readlink(filepath.Join(proc, "fd", f.Name())) // "" when it was closed meanwhile
		own[target] = true
	}
	for line := range strings.Lines(string(table)) {
		const remote, inode = 2, 9
		f := strings.Fields(line)
		if strings.HasSuffix(f[remote], fmt.Sprintf(":%04X", port)) && own["socket:["+f[inode]+"]"] {
			return true
		}
	}
	return false
}

func (s *stack) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.doc.API+"/metrics", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.doc.Token)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NotEmpty(t, text)
	return string(text)
}
