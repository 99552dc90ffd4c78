package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// X26: a build falls once one of its servers lapses, and until one has said for half the limit that it lives.
func TestFalling(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	server := func(id, build string, said int) decide.Server {
		return decide.Server{ID: id, Build: build, SeenAt: noon.Add(time.Duration(said) * time.Second)}
	}
	type look struct {
		at          time.Duration
		all, lapsed []decide.Server
		falls       bool
	}
	first := server("1", "new", 0)
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"one that speaks", []look{{at: 0, all: []decide.Server{first}}, {at: limit, all: []decide.Server{server("1", "new", 9)}}}},
		{"one that lapses", []look{{at: 0, all: []decide.Server{first}}, {at: limit, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true}}},
		{"it is remembered once the server is forgotten", []look{
			{at: 0, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true}, {at: 1, falls: true},
		}},
		{"another server of another build is no help", []look{
			{at: 0, all: []decide.Server{first, server("2", "old", 0)}, lapsed: []decide.Server{first}, falls: true},
			{at: limit, all: []decide.Server{server("2", "old", 1)}, falls: true},
		}},
		{"a start is no word that lasts", []look{
			{at: 0, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true},
			{at: 1, all: []decide.Server{server("2", "new", 1)}, falls: true},
			{at: 1 + limit, all: []decide.Server{server("2", "new", 1)}, falls: true},
		}},
		{"just less than half the limit", []look{
			{at: 0, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true},
			{at: 1, all: []decide.Server{server("2", "new", 1)}, falls: true},
			{at: limit / 2, all: []decide.Server{server("2", "new", 2)}, falls: true},
		}},
		{"half the limit", []look{
			{at: 0, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true},
			{at: 1, all: []decide.Server{server("2", "new", 1)}, falls: true},
			{at: 1 + limit/2, all: []decide.Server{server("2", "new", 2)}},
			{at: 2 + limit/2},
		}},
		{"steady, and lapsed", []look{
			{at: 0, all: []decide.Server{first}},
			{at: limit, all: []decide.Server{server("1", "new", 1)}},
			{at: 2 * limit, all: []decide.Server{server("1", "new", 1)}, lapsed: []decide.Server{server("1", "new", 1)}, falls: true},
		}},
		{"what it said before it was forgotten does not count", []look{
			{at: 0, all: []decide.Server{first}},
			{at: 1},
			{at: limit, all: []decide.Server{server("1", "new", 3)}, lapsed: []decide.Server{server("1", "new", 3)}, falls: true},
			{at: limit + 1, all: []decide.Server{server("1", "new", 4)}, falls: true},
		}},
		{"its clock does not count", []look{
			{at: 0, all: []decide.Server{first}, lapsed: []decide.Server{first}, falls: true},
			{at: 1, all: []decide.Server{server("2", "new", 1000)}, falls: true},
			{at: 2 + limit/2, all: []decide.Server{server("2", "new", 5)}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := decide.NewFalling(limit)
			for n, l := range c.looks {
				f.Look(l.all, l.lapsed, l.at)
				require.Equal(t, l.falls, f.Falls("new"), "look %d", n)
			}
			require.False(t, f.Falls("old"))
		})
	}
}
