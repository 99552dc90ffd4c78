package node

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// N97: a decoder keeps the window of a frame in memory, so one that announces more than 8 MiB is not
// decoded; the body is asked for once more without compression.
func TestFetchBoundsTheWindow(t *testing.T) {
	t.Parallel()
	data := random(100_000)
	for name, c := range map[string]struct{ window, asked int }{"as large as allowed": {8 << 20, 1}, "larger": {16 << 20, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frame := framed(t, data, c.window)
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "zstd")
				_, _ = w.Write(frame)
			}, nil)
			s.answers[1] = s.whole(data)
			f, err := fetch(t, s, data, func(f *fetching) { f.ReadIdle = time.Minute })
			require.NoError(t, err)
			require.Equal(t, data, f.to.keep.Bytes())
			asked := s.asked()
			require.Len(t, asked, c.asked)
			if c.asked > 1 {
				require.Equal(t, "identity", asked[1].Get("Accept-Encoding"))
			}
		})
	}
}

// framed is flushed half-way: so the frame begins before its size is known, with the whole window.
func framed(t *testing.T, data []byte, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	enc, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	require.NoError(t, err)
	for _, half := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		_, err = enc.Write(half)
		require.NoError(t, err)
		require.NoError(t, enc.Flush())
	}
	require.NoError(t, enc.Close())
	return out.Bytes()
}
