package fleet_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	require.NoError(t, fleet.DefaultRetention().Validate())
	for field, spoil := range map[string]func(*fleet.Retention){
		"keep-bodies":     func(r *fleet.Retention) { r.Bodies = 0 },
		"keep-uploads":    func(r *fleet.Retention) { r.Uploads = -time.Second },
		"keep-newest":     func(r *fleet.Retention) { r.Newest = 0 },
		"keep-deliveries": func(r *fleet.Retention) { r.Deliveries = 0 },
		"keep-operations": func(r *fleet.Retention) { r.Operations = time.Hour },
		"keep-events":     func(r *fleet.Retention) { r.Events = 0 },
	} {
		r := fleet.DefaultRetention()
		spoil(&r)
		err := r.Validate()
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), field)
		require.ErrorContains(t, err, field)
	}
}

// A body that a spec names is held by the write that brings it, and found by the collection.
// A new field that names one has to be in Bodies; in an InstanceSpec also in an index of the
// revisions (revisions_overrides), unless it is the revision's own body.
func TestBodiesOfSpecs(t *testing.T) {
	t.Parallel()
	var instance fleet.InstanceSpec
	var template fleet.TemplateSpec
	require.Equal(t, fill(&instance), instance.Bodies())
	require.Equal(t, fill(&template), template.Bodies())
	require.Len(t, instance.Bodies(), 3, "config, overrides and artifact")
}

// fill gives every Content of a spec a hash of its own.
func fill(spec any) (all []fleet.Hash) {
	v := reflect.ValueOf(spec).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Type() == reflect.TypeFor[*fleet.Content]() {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Type() == reflect.TypeFor[fleet.Content]() {
			h := fleet.Hash(fmt.Sprintf("%064d", i))
			f.Set(reflect.ValueOf(fleet.Content{Hash: h}))
			all = append(all, h)
		}
	}
	return all
}
