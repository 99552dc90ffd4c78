package boottime

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNow(t *testing.T) {
	t.Parallel()
	a, err := Now()
	require.NoError(t, err)
	b, err := Now()
	require.NoError(t, err)
	require.Positive(t, a)
	require.GreaterOrEqual(t, b, a)
}

func TestBoot(t *testing.T) {
	t.Parallel()
	a, err := Boot()
	require.NoError(t, err)
	b, err := Boot()
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Len(t, a, 36)
}
