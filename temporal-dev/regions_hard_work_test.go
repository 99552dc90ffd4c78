//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
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
	o := &hardObject{fmt.Sprintf("pool-%d", i), w.projects[w.draw.IntN(len(w.projects))], 1 + w.draw.IntN(1000), true}
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
		case kind == fleet.IllegalState || kind == fleet.NotFound:
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
		o.number, o.there = number, true
	}
}

func (w *hardWriter) remove(o *hardObject) {
	if w.write("delete "+o.name, func(ctx context.Context, m api.Mutation) error {
		_, err := w.at.api.Delete(ctx, fleet.ObjectKey{Kind: fleet.KindPool, Name: o.name}, m)
		return err
	}) {
		o.there = false
		return
	}
	w.accuse("%s does not delete %s, which it acknowledged", w.at.name, o.name)
}

// changePolicy enables other regions for a project of this one.
func (w *hardWriter) changePolicy() {
	project := hardProject(w.at.name, w.index%hardWriters)
	regions := []string{w.at.name}
	for _, name := range w.names {
		if name != w.at.name && w.draw.IntN(3) > 0 {
			regions = append(regions, name)
		}
	}
	if w.write("change the policy of "+project, func(ctx context.Context, m api.Mutation) error {
		_, err := w.at.api.PutProject(ctx, project, policyOf(w.at.name, regions), m)
		return err
	}) {
		w.policies[project] = regions
	}
}
