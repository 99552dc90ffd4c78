//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// hardWriter writes in one region. No other writer changes its objects, and it repeats each write with the same key until it
// is answered, so it knows what they must be in the end.
type hardWriter struct {
	*hard
	at       *hardRegion
	draw     *mathrand.Rand
	index    int
	projects []string
	policies map[string][]string // of the projects that this writer changes
	objects  []*hardObject
}

type hardObject struct {
	name, project string
	number        int
	there         bool
	acked         time.Time // the last write; 0 for the load
	// undone by a restore, and had: another region had it then.
	undone, had bool
}

// acknowledge notes what a region answered.
func (w *hardWriter) acknowledge(o *hardObject, number int, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.number, o.there, o.acked, o.undone, o.had = number, there, time.Now(), false, false
}

// The outcomes of writes.
const (
	hardDone    = "acknowledged"
	hardRefused = "refused by the policy"
	hardWrong   = "answered wrongly"
)

var hardOutcomes = []string{hardDone, hardRefused, hardWrong}

const (
	hardCall  = 10 * time.Second
	hardPause = 60 * time.Millisecond // between two writes, on average
)

func newHardWriter(h *hard, at *hardRegion, projects []string, index int) *hardWriter {
	w := &hardWriter{
		hard: h, at: at, index: index, projects: projects, policies: map[string][]string{},
		draw: mathrand.New(mathrand.NewPCG(h.seed, uint64(100+index))),
	}
	if i := index % hardWriters; i < hardProjects {
		w.policies[hardProject(at.name, i)] = h.names
	}
	return w
}

// first makes an object that the load declares.
func (w *hardWriter) first(i int) *hardObject {
	o := &hardObject{name: fmt.Sprintf("pool-%d", i), project: w.projects[w.draw.IntN(len(w.projects))], number: 1 + w.draw.IntN(1000), there: true}
	w.objects = append(w.objects, o)
	return o
}

func policyOf(control string, regions []string) api.ProjectPut {
	return api.ProjectPut{MultiRegionPolicy: &api.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: control}}
}

func (w *hardWriter) run(ctx context.Context) {
	for pause.For(ctx, time.Duration(w.draw.Int64N(int64(2*hardPause)))) == nil {
		o := w.objects[w.draw.IntN(len(w.objects))]
		switch n := w.draw.IntN(100); {
		case n == 0 && len(w.policies) > 0:
			w.changePolicy()
		case n < 25 && o.there:
			w.remove(o)
		default:
			w.put(o)
		}
	}
}

// write repeats a write until it is answered, also after the end of the run: then all is healed.
func (w *hardWriter) write(what string, call func(ctx context.Context, m api.Mutation) error) (done bool) {
	m := api.Mutation{IdempotencyKey: rand.Text()}
	deadline := time.Now().Add(*hardFor + *hardSettle)
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), hardCall)
		err := call(ctx, m)
		cancel()
		switch kind := fleet.KindOf(err); {
		case err == nil:
			w.count(w.written, hardDone)
			return true
		case kind == fleet.IllegalState || kind == fleet.NotFound || kind == fleet.NotOwner:
			w.count(w.written, hardRefused)
			return false
		case !kind.Retryable() || time.Now().After(deadline):
			w.count(w.written, hardWrong)
			w.accuse("%s in %s: %v", what, w.at.name, err)
			return false
		}
		_ = pause.For(context.Background(), hardPause)
	}
}

func (w *hardWriter) put(o *hardObject) {
	number := 1 + w.draw.IntN(1000)
	if w.write("put "+o.name, func(ctx context.Context, m api.Mutation) error {
		_, err := w.at.api.Put(ctx, fleet.ObjectKey{Kind: fleet.KindPool, Name: o.name}, api.PoolPut{Project: o.project, MaxReplicas: number}, m)
		return err
	}) {
		w.acknowledge(o, number, true)
	}
}

func (w *hardWriter) remove(o *hardObject) {
	if w.write("delete "+o.name, func(ctx context.Context, m api.Mutation) error {
		_, err := w.at.api.Delete(ctx, fleet.ObjectKey{Kind: fleet.KindPool, Name: o.name}, m)
		return err
	}) {
		w.acknowledge(o, 0, false)
		return
	}
	if w.mayLose() {
		return // it is gone by a restore, or has first to compare
	}
	w.accuse("%s does not delete %s, which it acknowledged", w.at.name, o.name)
}

// changePolicy enables other regions for a project that this one created. Where regions claim by force, all stay enabled: a claim by a
// policy that was replaced meanwhile counts nowhere else, until an operator ends that.
func (w *hardWriter) changePolicy() {
	project, control, regions := hardProject(w.at.name, w.index%hardWriters), w.at.name, []string{w.at.name}
	for _, name := range w.names {
		if name != w.at.name && (hardClaimed(project) || w.draw.IntN(3) > 0) {
			regions = append(regions, name)
		}
	}
	for range 2 { // the second time, at the owner that the first answer named
		if !slices.Contains(regions, control) {
			regions = append(regions, control)
		}
		owner := ""
		if w.write("change the policy of "+project, func(ctx context.Context, m api.Mutation) error {
			_, err := w.regions[control].api.PutProject(ctx, project, policyOf(control, regions), m)
			var problem *api.Error
			if errors.As(err, &problem) {
				owner = problem.Owner
			}
			return err
		}) {
			w.policies[project] = regions
			return
		}
		if owner == "" || w.regions[owner] == nil {
			return
		}
		control = owner
	}
}

// hardClaimed: regions claim the second project of each by force.
func hardClaimed(project string) bool { return strings.HasSuffix(project, "-1") }
