//go:build !race

package compose_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
)

// stringHeavy is an object of 1 KiB strings, some with escapes, its names not in order.
func stringHeavy(size int) []byte {
	var b bytes.Buffer
	b.Grow(size + 2048)
	b.WriteByte('{')
	text := strings.Repeat(`some text \"quoted\" \u00e9 `, 36)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\"key-%d\":\"%s\"\n", (i*7919)%100_003, text)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// array is one of n elements with space between them up to the size.
func array(element string, n, size int) []byte {
	pad := strings.Repeat(" ", max(size/n-len(element)-1, 0))
	return []byte("[" + strings.TrimSuffix(strings.Repeat(element+","+pad, n), ","+pad) + "]")
}

type shape struct {
	name   string
	layers []compose.Layer
	refuse bool
	// factor bounds what is allocated in all, and thus the peak, in sizes of the input.
	factor float64
}

// shapes gives inputs of about size bytes, with as many values as the limits then allow
// and with more. The default limits allow 2 million.
func shapes(size, values int) []shape {
	one := func(b []byte) []compose.Layer { return []compose.Layer{{JSON: b}} }
	text := stringHeavy(size)
	patch := compose.Layer{JSON: []byte(`{"key-7919":null,"key-0":"x"}`)}
	return []shape{
		{"strings", one(text), false, 1.5},
		{"one string", one([]byte(`"` + strings.Repeat(`\u0061b`, size/7) + `"`)), false, 1.1},
		{"strings and a small patch", []compose.Layer{{JSON: text}, patch}, false, 2.5},
		{"strings over strings", []compose.Layer{{JSON: text}, {JSON: text}}, false, 2.5},
		{"integers", one(array("1234567890123456", values-1, size)), false, 2.5},
		{"floats", one(array("0.12345678901", values-1, size)), false, 2.5},
		{"empty objects", one(array("{}", values-1, size)), false, 1.5},
		{"small objects", one(array(`{"a":1}`, values/2-1, size)), false, 1.5},
		{"integers beyond the limit", one(array("1", size/2, size)), true, 1.5},
		{"empty objects beyond the limit", one(array("{}", size/3, size)), true, 1.5},
		{"small objects beyond the limit", one(array(`{"a":1}`, size/8, size)), true, 1.5},
	}
}

func (s shape) size() (n int64) {
	for _, l := range s.layers {
		n += int64(len(l.JSON))
	}
	return n
}

// allocated gives how many times its input's size flattening allocates in all: an upper
// bound of the peak that no garbage collector can blur.
func allocated(t *testing.T, s shape, l compose.Limits) float64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := compose.Flatten(s.layers, l)
	runtime.ReadMemStats(&after)
	require.Equal(t, s.refuse, err != nil)
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(s.size())
}

// Not parallel: it reads what the whole process allocates.
func TestMemoryIsAFewTimesTheInput(t *testing.T) {
	t.Run("whatever its shape", func(t *testing.T) {
		limits := compose.DefaultLimits()
		limits.MaxValues /= 10
		for _, s := range shapes(4<<20, limits.MaxValues) {
			factor := allocated(t, s, limits)
			t.Logf("%s: %.2f", s.name, factor)
			require.Less(t, factor, s.factor, s.name)
		}
	})
	t.Run("also for 40 MB of strings", func(t *testing.T) {
		s := shape{layers: []compose.Layer{{JSON: stringHeavy(40 << 20)}, {JSON: []byte(`{"key-0":null}`)}}}
		factor := allocated(t, s, compose.DefaultLimits())
		t.Logf("%.2f", factor)
		require.Less(t, factor, 2.5)
	})
}

func BenchmarkFlatten(b *testing.B) {
	for _, s := range shapes(40<<20, 2_000_000) {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(s.size())
			b.ReportAllocs()
			for b.Loop() {
				_, _ = compose.Flatten(s.layers, compose.DefaultLimits())
			}
		})
	}
	b.Run("a small document", func(b *testing.B) {
		src := []byte(`{"name":"plant","limits":{"cpu":2,"memory":0.5},"list":[1,2,3],"on":true}`)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = compose.Canonical(src, compose.DefaultLimits())
		}
	})
}
