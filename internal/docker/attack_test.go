package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// runs adds a container that another program made.
func (f *fakeEngine) runs(name string, labels map[string]string) *fakeContainer {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeContainer{id: "id-" + name, name: name, state: "running", ended: make(chan struct{})}
	c.Labels = labels
	f.containers[name] = c
	return c
}

// X3: a container with the driver's labels and another name, as an image can have them, is not the driver's.
func TestForgedLabels(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	forged := f.runs("foreign", map[string]string{labelReplica: string(web), labelNode: "plant-1-a"})
	other := f.runs("stranger", map[string]string{labelReplica: "bbbbbbbbbbbb", labelNode: "plant-1-a"})
	before := f.runs("command", map[string]string{labelReplica: string(web), labelNode: "plant-1-a", labelBefore: "1"})
	neighbour := f.runs("holdfast-cccccccccccc", map[string]string{labelReplica: "cccccccccccc", labelNode: "plant-1-b"})
	found, err := d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []replicas.Found{{ID: web, Running: true, PID: 4711}}, found)
	used, err := d.Usage(t.Context())
	require.NoError(t, err)
	require.Len(t, used, 1)
	for _, id := range []fleet.ReplicaID{web, "bbbbbbbbbbbb", "cccccccccccc"} {
		require.NoError(t, d.Stop(t.Context(), id, 0))
		require.NoError(t, d.Remove(t.Context(), id))
	}
	require.Len(t, f.containers, 4)
	for _, c := range []*fakeContainer{forged, other, before, neighbour} {
		require.Equal(t, "running", c.state, c.name)
		require.Empty(t, c.signals, c.name)
	}
}

// X3: a container that has the name of a replica's, and is of another program or node, is neither read nor ended.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	for title, labels := range map[string]map[string]string{
		"no labels": nil, "another replica": {labelReplica: "bbbbbbbbbbbb", labelNode: "plant-1-a"}, "another node": {labelReplica: string(web), labelNode: "plant-1-b"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			f.exits["fetch"] = 0
			foreign, before := f.runs(name, labels), f.runs(name+"-before", labels)
			f.prints(name, "hush\n")
			found, err := d.Look(t.Context(), web)
			require.NoError(t, err)
			require.Equal(t, replicas.Found{ID: web}, found)
			exit, err := d.Await(t.Context(), web)
			require.NoError(t, err)
			require.Zero(t, exit)
			out, err := d.Output(t.Context(), web, 0)
			require.NoError(t, err)
			require.Empty(t, out.Data)
			_, err = d.Start(t.Context(), launch(func(l *replicas.Launch) { f.images[l.Process.Image] = true }))
			require.Equal(t, fleet.Conflict, fleet.KindOf(err), "%v", err)
			err = ready(t.Context(), d, launch(func(l *replicas.Launch) { l.Process.PreStart = [][]string{{"fetch"}} }))
			require.Equal(t, fleet.Conflict, fleet.KindOf(err), "%v", err)
			require.NoError(t, d.Stop(t.Context(), web, 0))
			require.NoError(t, d.Remove(t.Context(), web))
			require.Equal(t, map[string]*fakeContainer{name: foreign, name + "-before": before}, f.containers)
			require.Equal(t, []string{"running", "running"}, []string{foreign.state, before.state})
		})
	}
}

// X19: an image is known by its name, although an engine also finds it by the first digits of its id.
func TestImagesByID(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	f.images["example.org/secret:1"] = true
	for _, id := range []string{"c", "cafe", "cafe0123"} {
		l := launch(func(l *replicas.Launch) { l.Process.Image = id })
		require.ErrorContains(t, ready(t.Context(), d, l), "connection reset")
		_, err := d.Start(t.Context(), l)
		var failure *replicas.Failure
		require.ErrorAs(t, err, &failure)
	}
	require.Equal(t, []string{"c:latest", "cafe:latest", "cafe0123:latest"}, f.pulls)
	require.Empty(t, f.containers)
}

// X19: no container is made that is too long to describe, since nothing could stop it.
func TestTooLongToDescribe(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	long := strings.Repeat("x", fleet.MaxCommandBytes/2)
	l := launch(func(l *replicas.Launch) { l.Process.Args = []string{long, long} })
	require.NoError(t, ready(t.Context(), d, l))
	_, err := d.Start(t.Context(), l)
	var failure *replicas.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, fleet.ReasonNotStarted, failure.Reason)
	require.EqualError(t, err, "command and environment have 262159 bytes; the limit is 262144")
	l.Process.PreStart = [][]string{{long, long, "x"}}
	require.Equal(t, fleet.Invalid, fleet.KindOf(ready(t.Context(), d, l)))
	require.Empty(t, f.containers)

	f.comment = strings.Repeat("x", maxImage)
	err = ready(t.Context(), d, launch())
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	require.EqualError(t, err, "labels, environment and commands of the image have more than 262144 bytes")
	f.comment = strings.Repeat("x", maxImage-100)
	require.NoError(t, ready(t.Context(), d, launch()))
}
