package guardian

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X27: what a program prints stays bounded.
func TestOutput(t *testing.T) {
	t.Parallel()
	t.Run("is read whole and in order while it rotates", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		o := newOutput(t, r, 1000)
		var got bytes.Buffer
		next := int64(0)
		var want bytes.Buffer
		for i := range 100 {
			line := fmt.Sprintf("line %d of the output\n", i)
			want.WriteString(line)
			require.NoError(t, o.write([]byte(line)))
			out, err := r.ReadOutput("line-7", next)
			require.NoError(t, err)
			require.Zero(t, out.Skipped)
			require.Equal(t, next, out.Offset)
			got.Write(out.Data)
			next = out.Next
		}
		for next < int64(want.Len()) {
			out, err := r.ReadOutput("line-7", next)
			require.NoError(t, err)
			got.Write(out.Data)
			next = out.Next
		}
		require.Equal(t, want.String(), got.String())
	})
	t.Run("goes on where a removed one ended", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "echo one; exec sleep 1000")
		start(t, r, spec)
		printed(t, r, "one")
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.NoError(t, r.Remove(t.Context(), "line-7"))
		spec.OutputFrom = int64(len("one\n"))
		start(t, r, spec)
		printed(t, r, "one")
		out, err := r.ReadOutput("line-7", spec.OutputFrom)
		require.NoError(t, err)
		require.Equal(t, Output{Data: []byte("one\n"), Offset: 4, Next: 8}, out)
	})
	t.Run("says how much of it was lost to a slow reader", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		o := newOutput(t, r, 100)
		require.NoError(t, o.write(bytes.Repeat([]byte("x"), 450)))
		out, err := r.ReadOutput("line-7", 30)
		require.NoError(t, err)
		require.Equal(t, Output{Data: bytes.Repeat([]byte("x"), 100), Offset: 300, Next: 400, Skipped: 270}, out)
		out, err = r.ReadOutput("line-7", out.Next)
		require.NoError(t, err)
		require.Len(t, out.Data, 50)
		out, err = r.ReadOutput("line-7", out.Next)
		require.NoError(t, err)
		require.Equal(t, Output{Offset: 450, Next: 450}, Output{Offset: out.Offset, Next: out.Next})
		require.Empty(t, out.Data)
	})
	t.Run("is read from its start when it began anew", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		require.NoError(t, newOutput(t, r, 100).write([]byte("new")))
		out, err := r.ReadOutput("line-7", 5000)
		require.NoError(t, err)
		require.Equal(t, Output{Data: []byte("new"), Next: 3}, out)
	})
	t.Run("is empty for a name without any", func(t *testing.T) {
		t.Parallel()
		out, err := setup(t).ReadOutput("line-7", 5)
		require.NoError(t, err)
		require.Equal(t, Output{Offset: 5, Next: 5}, out)
		_, err = setup(t).ReadOutput("../x", 0)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
	t.Run("of a real command is bounded and goes on over guardians", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.OutputLimit = 64 << 10
		start(t, r, shell(t, "head -c 1000000 /dev/zero | tr '\\0' x; echo full >&2; exec sleep 1000"))
		var out Output
		eventually(t, func() bool {
			var err error
			out, err = r.ReadOutput("line-7", out.Next)
			require.NoError(t, err)
			return strings.HasSuffix(string(out.Data), "full\n")
		}, "output missing")
		require.Equal(t, int64(1000005), out.Next)
		found, err := segments(filepath.Join(r.Root, "line-7"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(found), 2)
		for _, s := range found {
			require.LessOrEqual(t, s.size, r.OutputLimit)
		}
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		start(t, r, shell(t, "echo again; exec sleep 1000"))
		eventually(t, func() bool {
			out, err = r.ReadOutput("line-7", 1000005)
			require.NoError(t, err)
			return string(out.Data) == "again\n"
		}, "the offset did not go on")
		linked, err := os.ReadFile(filepath.Join(r.Root, "line-7", outputLink))
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(linked), "again\n"))
	})
}

func newOutput(t *testing.T, r *Runtime, limit int64) *output {
	t.Helper()
	dir := filepath.Join(r.Root, "line-7")
	require.NoError(t, os.Mkdir(dir, 0o700))
	o := &output{dir: dir, limit: limit}
	require.NoError(t, o.open())
	t.Cleanup(func() { require.NoError(t, o.file.Close()) })
	return o
}
