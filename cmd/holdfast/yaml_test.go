package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/documents"
)

func canonicalText(t require.TestingT, text []byte) string {
	out, err := compose.Canonical(text, compose.DefaultLimits())
	require.NoError(t, err)
	return string(out)
}

// N106: what -o yaml writes is the same config when it is applied again: numbers keep their digits, and texts that look
// like numbers stay texts.
func TestYAMLKeepsNumbers(t *testing.T) {
	t.Parallel()
	back := func(t require.TestingT, text []byte) (written, again string) {
		var out bytes.Buffer
		require.NoError(t, writeYAML(&out, json.RawMessage(text)))
		all, err := documents.YAML("x.yaml", ".", out.Bytes())
		require.NoError(t, err, out.String())
		require.Len(t, all, 1)
		return out.String(), canonicalText(t, all[0].Data)
	}
	t.Run("of all kinds", func(t *testing.T) {
		t.Parallel()
		text := []byte(`{"n":[12345678901234567890123,9007199254740993,-73.983947999999998,1e3,1.0,0,0.0,1e+21,-5e-324],` +
			`"s":["12345678901234567890123","1e400","1e-400","0x1FFFFFFFFFFFFFFFFFFFFFF","01067","08","1:30","1_000",".5","true","null","~",""]}`)
		written, again := back(t, text)
		require.Contains(t, written, "- 12345678901234567890123\n")
		require.Contains(t, written, "- -73.983947999999998\n")
		require.Contains(t, written, `- "1e400"`)
		require.Equal(t, canonicalText(t, text), again)
	})
	t.Run("at random", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
			like, err := json.Marshal(rapid.StringMatching(`[-+]?[0-9.]{1,6}[0-9_.eExXoObBaAfF:+-]{0,8}`).Draw(t, "text"))
			require.NoError(t, err)
			text := []byte(`{"n":[` + number + `],"s":[` + string(like) + `]}`)
			written, again := back(t, text)
			require.Equal(t, canonicalText(t, text), again)

			// To other parsers too a text is a text: none of them reads what is quoted as a number.
			var n yaml.Node
			require.NoError(t, yaml.Unmarshal([]byte(written), &n))
			item := n.Content[0].Content[3].Content[0]
			require.True(t, item.Style != 0 || !documents.LooksLikeNumber(item.Value), written)
		})
	})
}

// N106: what the Go client sends and receives has the digits of the caller.
func TestManifestKeepsNumbers(t *testing.T) {
	t.Parallel()
	const config = `{"a":[12345678901234567890123,9007199254740993,-73.983947999999998,1e3,1.0,-0,0.0]}`
	var put api.InstancePut
	require.NoError(t, strictly([]byte(`{"config":`+config+`}`), &put))
	require.Equal(t, config, string(put.Config))
	sent, err := json.Marshal(put)
	require.NoError(t, err)
	require.JSONEq(t, `{"config":`+config+`}`, string(sent))
	require.Contains(t, string(sent), config)
}
