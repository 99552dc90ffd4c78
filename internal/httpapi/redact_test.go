package httpapi

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// X10
func TestRedact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		pointers   []string
		want       string
	}{
		{"a member", `{"a":1,"db":{"password":"x","user":"y"}}`, []string{"/db/password"}, `{"a":1,"db":{"password":"<redacted>","user":"y"}}`},
		{"an object with all below it", `{"a":{"b":[1,{"c":2}]},"z":3}`, []string{"/a/b/1/c", "/a"}, `{"a":"<redacted>","z":3}`},
		{"elements", `[1,[2,3],"4",null]`, []string{"/0", "/1/1", "/3"}, `["<redacted>",[2,"<redacted>"],"4","<redacted>"]`},
		{"the whole document", `{"a":1}`, []string{""}, `"<redacted>"`},
		{"a whole scalar", `12`, []string{""}, `"<redacted>"`},
		{"empty containers", `{"a":{},"b":[]}`, []string{"/a", "/b"}, `{"a":"<redacted>","b":"<redacted>"}`},
		{"names with escapes", `{"a/b":{"m~n":1,"":2},"é\"":3}`, []string{"/a~1b/m~0n", "/a~1b/", "/é\""}, `{"a/b":{"m~n":"<redacted>","":"<redacted>"},"é\"":"<redacted>"}`},
		{"an object's member that is a number", `{"0":1,"1":2}`, []string{"/1"}, `{"0":1,"1":"<redacted>"}`},
		{"what does not match", `{"a":[1],"b":2}`, []string{"/a/-", "/a/01", "/a/1", "/b/c", "/c"}, `{"a":[1],"b":2}`},
		{"text that is not canonical", " { \"a\" : [ 1 , \"s\" ] }\n", []string{"/a/1"}, " { \"a\" : [ 1 , \"<redacted>\" ] }\n"},
	} {
		t.Run("hides "+c.name, func(t *testing.T) {
			t.Parallel()
			got, err := io.ReadAll(redact(t, c.body, c.pointers))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}

	t.Run("gives the same bytes from every offset", func(t *testing.T) {
		t.Parallel()
		r := redact(t, `{"a":"1","b":[2,"3"],"c":4}`, []string{"/a", "/b/0", "/c"})
		whole, err := io.ReadAll(r)
		require.NoError(t, err)
		require.EqualValues(t, len(whole), r.size)
		for at := range whole {
			_, err := r.Seek(int64(at), io.SeekStart)
			require.NoError(t, err)
			rest, err := io.ReadAll(byByte{r})
			require.NoError(t, err)
			require.Equal(t, string(whole[at:]), string(rest))
		}
		end, err := r.Seek(0, io.SeekEnd)
		require.NoError(t, err)
		require.EqualValues(t, len(whole), end)
	})

	t.Run("tags what it hides", func(t *testing.T) {
		t.Parallel()
		one := redact(t, `{"a":1,"b":2}`, []string{"/a"})
		require.Equal(t, one.tag("h"), redact(t, `{"a":1,"b":2}`, []string{"/a", "/c"}).tag("h"))
		require.NotEqual(t, one.tag("h"), redact(t, `{"a":1,"b":2}`, []string{"/b"}).tag("h"))
	})
}

// byByte reads by single bytes.
type byByte struct{ io.Reader }

func (r byByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 1)]) }

func redact(t *testing.T, body string, pointers []string) *redacted {
	t.Helper()
	hidden, err := findSecrets(strings.NewReader(body), pointers)
	require.NoError(t, err)
	return newRedacted(strings.NewReader(body), int64(len(body)), hidden)
}
