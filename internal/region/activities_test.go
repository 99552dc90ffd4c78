package region

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/store"
)

// X23: a server makes all activities that its worker registers.
func TestActivitiesAreMade(t *testing.T) {
	t.Parallel()
	s := &server{store: &store.Store{}, metrics: &metrics{}, presence: &presence{}, handler: &httpapi.Handler{}}
	made := s.activities()
	for i, a := range made.Activities() {
		require.False(t, reflect.ValueOf(a).IsNil(), reflect.TypeOf(made).Field(i).Name)
	}
}
