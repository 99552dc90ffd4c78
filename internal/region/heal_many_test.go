package region

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const healFleets = 2

func healFleet(i int) fleet.FleetName { return fleet.FleetName("wave-" + strconv.Itoa(i%healFleets+1)) }

func healFleetPath(i int) string { return "/api/v1/fleets/" + string(healFleet(i)) }

// many is what people do to many instances at once.
func (w *healWorld) many(s healStep) error {
	switch s.Kind {
	case "crowd":
		return w.crowd(s)
	case "fleet":
		w.body++
		w.changed(w.put(healFleetPath(s.Node), w.fleetPut(s.Pick)))
	case "turn":
		verbs := []string{"run", "pause", "resume", "resume", "cancel", "retry", "rollback"}
		w.turn(s.Node, verbs[s.Pick%len(verbs)])
	case "window":
		w.shut = !w.calm && !w.shut
		w.unpark()
	case "overdue":
		if err := w.region.pass(w.ctx, 40*time.Minute); err != nil {
			return err
		}
		_, err := w.region.sweep.SweepOperations(w.ctx, func() {})
		return err
	}
	return nil
}

// crowd has some instances written at once, and what waits at their site delivered together,
// as a server does for a crowd. Those that start something are left to their entities.
func (w *healWorld) crowd(s healStep) error {
	w.gathers = s.Pick%4 > 0
	for i := range 2 + s.Pick%3 {
		w.body++
		in := w.spec(s.Pick+i, fmt.Sprintf(`{"n":%d}`, w.body))
		if s.Pick%5 > 0 {
			in.Run = nil
		}
		w.changed(w.put(healInstancePath(s.Name+i), in))
	}
	w.gathers = false
	return w.region.server.flows.Wake(w.ctx, fleet.DeliverSubject(healSite))
}

func (w *healWorld) turn(which int, verb string) {
	w.say("turn: %s %s", verb, healFleet(which))
	w.changed(w.region.call(w.ctx, http.MethodPost, healFleetPath(which)+"/"+verb, api.ActionRequest{}))
}

// fleetPut is a change of many instances: a generation of the template, or a patch.
func (w *healWorld) fleetPut(pick int) api.FleetPut {
	in := api.FleetPut{BatchSize: 1 + pick%4, MinRunSeconds: new(int64)}
	if pick%3 == 0 {
		in.Change.Template = "base"
	} else {
		in.Change.Patch = json.RawMessage(fmt.Sprintf(`{"fleet":%d}`, w.body))
	}
	if pick%5 == 0 {
		in.Selector.Labels = map[string]string{"line": "a"}
	}
	if pick%2 == 0 {
		in.ErrorThreshold = 100
	}
	if pick%7 < 3 {
		in.Waves = []fleet.FleetWave{{Percent: 50}}
	}
	if pick%11 == 0 {
		in.DeadlineSeconds = int64(30 * time.Minute / time.Second)
	}
	return in
}

// resumePaused: who paused a change and went away is no fault that a region heals.
func (w *healWorld) resumePaused() error {
	rows, err := w.region.pool.Query(w.ctx, "SELECT DISTINCT fleet FROM fleet_runs WHERE state = 'paused' ORDER BY fleet")
	if err != nil {
		return err
	}
	paused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for i := range healFleets {
		for _, name := range paused {
			if fleet.FleetName(name) == healFleet(i) {
				w.turn(i, "resume")
			}
		}
	}
	return err
}
