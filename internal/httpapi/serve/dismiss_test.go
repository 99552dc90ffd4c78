package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mustNotCome is how long a test waits for what must not come.
const mustNotCome = 300 * time.Millisecond

// X21
func TestDismissLeavesTheConnectionAlone(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"announced": 2, "of unknown length": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := make(chan error, 1)
			s := &Server{Now: func() time.Time { return past }} // each deadline has passed when it is set
			on := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := &bodyRead{ReadCloser: r.Body}
				_, err := io.Copy(w, body)
				s.dismiss(w, r, body)
				select {
				case <-r.Context().Done():
					err = r.Context().Err()
				case <-time.After(mustNotCome):
				}
				served <- err
			}))
			defer on.Close()
			for range 2 { // the second by the same connection
				in, err := http.NewRequestWithContext(t.Context(), http.MethodPut, on.URL, io.NopCloser(strings.NewReader("{}")))
				require.NoError(t, err)
				in.ContentLength = length
				out, err := on.Client().Do(in)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, out.Body)
				require.NoError(t, err)
				require.NoError(t, out.Body.Close())
				require.NoError(t, <-served)
			}
		})
	}
}
