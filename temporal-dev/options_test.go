package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	t.Run("have the documented defaults", func(t *testing.T) {
		t.Parallel()
		o, err := parseOptions(nil, &bytes.Buffer{})
		require.NoError(t, err)
		require.True(t, filepath.IsAbs(o.data))
		require.Equal(t, defaultData, filepath.Base(o.data))
		o.data = ""
		require.Equal(t, options{
			api: "127.0.0.1:7460", temporal: "127.0.0.1:7233", web: "127.0.0.1:8233", sites: 2, regions: 1,
		}, o)
	})
	t.Run("say what is allowed and end with the usage code", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"invalid --regions 4: want 1 to 3":                         {"--regions", "4"},
			"usage: temporal-dev cut A B":                              {"cut", "eu"},
			"usage: temporal-dev heal A B":                             {"heal", "eu", "eu"},
			"invalid --sites 0: want 1 to 20":                          {"--sites", "0"},
			"invalid --link-heartbeat-timeout 20ms: want 1s to 1h0m0s": {"--fast", "--link-heartbeat-timeout", "20ms"},
			`unexpected argument "now"`:                                {"--once", "now"},
			`unknown command "go"`:                                     {"go"},
			"usage: temporal-dev stop NAME":                            {"stop"},
			"usage: temporal-dev start NAME":                           {"start", "../x"},
			"usage: temporal-dev ps":                                   {"ps", "server"},
			"flag provided but not defined: -no-such-flag":             {"--no-such-flag"},
		} {
			var stderr bytes.Buffer
			require.Equal(t, exitUsage, run(args, &bytes.Buffer{}, &stderr), args)
			require.Contains(t, stderr.String(), want)
		}
	})
	t.Run("take --data before and after the name", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"--data", "d", "server"}, {"server", "--data", "d"}} {
			name, data, err := parseSteer("stop", args, &bytes.Buffer{})
			require.NoError(t, err)
			require.Equal(t, []string{"server", "d"}, []string{name, data})
		}
	})
}
