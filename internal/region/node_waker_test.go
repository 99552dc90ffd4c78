package region

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

type wants func(fleet.NodeName) error

// WantNode calls the function.
func (w wants) WantNode(_ context.Context, node fleet.NodeName) error { return w(node) }

func TestNodeWaker(t *testing.T) {
	t.Parallel()
	const idle = 8 * time.Second
	at := time.Unix(1, 0)
	var said []fleet.NodeName
	var away error
	store := wants(func(node fleet.NodeName) error { said = append(said, node); return away })
	w := newNodeWaker(store, idle, func() time.Time { return at })
	wake := func(nodes ...fleet.NodeName) []fleet.NodeName {
		said = nil
		require.NoError(t, w.WakeNodes(t.Context(), nodes...))
		return said
	}
	require.Equal(t, []fleet.NodeName{"a", "b"}, wake("a", "b", ""))
	require.Empty(t, wake("a", "b"), "they ask for tasks now")
	at = at.Add(decide.SayAgain(idle) - 1)
	require.Empty(t, wake("a"))
	at = at.Add(1)
	require.Equal(t, []fleet.NodeName{"a"}, wake("a"))
	require.Empty(t, wake("a"))

	at = at.Add(idle)
	away = errors.New("the database is away")
	require.ErrorIs(t, w.WakeNodes(t.Context(), "a"), away)
	away = nil
	require.Equal(t, []fleet.NodeName{"a"}, wake("a"), "what was not said is said again")

	require.NoError(t, newNodeWaker(nil, 0, nil).WakeNodes(t.Context(), "a"), "where no node idles")
}
