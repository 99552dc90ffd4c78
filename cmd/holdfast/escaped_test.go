package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEscaped(t *testing.T) {
	t.Parallel()
	show := func(width int, raw bool, parts ...string) string {
		var out bytes.Buffer
		c := &cli{process: process{stdout: &out, width: func(io.Writer) int { return width }}}
		w := c.programs(raw)
		for _, p := range parts {
			n, err := io.WriteString(w, p)
			require.NoError(t, err)
			require.Equal(t, len(p), n)
		}
		return out.String()
	}

	for _, c := range []struct {
		name, in, want string
	}{
		{"text", "größer 世界\n\tpaid 3 €\r\n", "größer 世界\n\tpaid 3 €\r\n"},
		{"a title", "\x1b]0;owned\x07", `\x1b]0;owned\x07`},
		{"colours", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"a line that is written over", "failed\rpassed\n", `failed\x0dpassed` + "\n"},
		{"deleted text", "no\b\b\x7f", `no\x08\x08\x7f`},
		{"controls of eight bits", "\u009b31m\x9b31m", `\u009b31m\x9b31m`},
		{"text that runs backwards", "\u202egnp.exe", `\u202egnp.exe`},
		{"no UTF-8", "a\xff\xfeb\xe4\n", `a\xff\xfeb\xe4` + "\n"},
		{"an escape that is spelt out", `\x1b`, `\x1b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, show(80, false, c.in))
			require.Equal(t, c.in, show(80, true, c.in), "asked for as it is")
			require.Equal(t, c.in, show(0, false, c.in), "in a pipe")
		})
	}

	t.Run("characters that are cut", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "世界\r\n", show(80, false, "世", "\xe7", "\x95", "\x8c\r", "\n"))
		require.Equal(t, `\xe7\x95x\x0dy`, show(80, false, "\xe7\x95", "x\r", "y"))
	})

	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		w := &escaped{to: &out}
		_, err := io.WriteString(w, "cut \xe7\x95")
		require.NoError(t, err)
		heading(w, "\n==> %s <==\n", "b")
		_, err = io.WriteString(w, "\x8c")
		require.NoError(t, err)
		require.Equal(t, `cut \xe7\x95`+"\n==> b <==\n"+`\x8c`, out.String())
	})
}
