package replicas

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// firstFailing is how long the first failures wait before they are reported: most replicas are healthy by then.
const firstFailing = 2 * time.Second

// failures are the replicas whose checks failed since the last report about such. Keeper.mu guards it.
type failures struct {
	ids   map[fleet.ReplicaID]bool
	timed bool // a report is due
	last  time.Duration
}

// failing records that a check of a replica that is not healthy, or not ready, failed. All of them are reported together,
// at most every FailingEvery; while no check fails there is no timer (X11).
func (k *Keeper) failing(id fleet.ReplicaID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.failures
	if f.ids[id] = true; f.timed {
		return
	}
	wait := firstFailing
	if f.last > 0 {
		wait = max(wait, f.last+k.opt.FailingEvery-k.opt.Now())
	}
	f.timed = true
	time.AfterFunc(wait, k.reportFailing)
}

func (k *Keeper) reportFailing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.failures
	f.timed, f.last = false, k.opt.Now()
	for id := range f.ids {
		if w, has := k.replicas[id]; has {
			w.tells = true
			w.poke()
		}
	}
	clear(f.ids)
}

// keepFailing keeps why the checks of a running replica fail, for its line in reports. A report of its own has only what
// reportFailing chose.
func (w *worker) keepFailing() {
	r := w.now()
	if r.Phase != fleet.PhaseRunning || w.def == nil {
		return
	}
	w.mu.Lock()
	health, readiness := w.probe, w.readiness
	w.mu.Unlock()
	def := w.obeyed()
	is := failing{Health: w.check(def.Health, health, r.Failing.Health), Readiness: w.check(def.Readiness, readiness, r.Failing.Readiness)}
	k := w.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := w.known.Failing != is
	w.known.Failing = is
	if changed && w.tells {
		k.passing(w.id)
	}
	w.tells = false
}

// check describes a check by the state of its probes; was is what was known of it.
func (w *worker) check(of *fleet.HealthCheck, p decide.ProbeState, was failedCheck) failedCheck {
	check, port := checkOf(of, w.def.Ports)
	switch {
	case p.Health == "": // it is being stopped
		return was
	case check.Type == fleet.HealthNone || p.Health == fleet.HealthHealthy || p.Failure.Times == 0:
		return failedCheck{}
	case p.Failure == was.ProbeFailure:
		return was
	}
	at := w.now().Ports[port]
	return failedCheck{ProbeFailure: p.Failure, Check: checkText(check, w.addressOf(port)), Listens: w.listens(p.Failure.Cause, at)}
}

// guarded is a driver whose replicas run below another process than their own.
type guarded interface {
	Guardian(id fleet.ReplicaID) int
}

// listens says where a replica listens, "" if on the port of its check, or if that is not known.
func (w *worker) listens(cause string, port int) string {
	r := w.now()
	if !unreached(cause) {
		return ""
	}
	root := r.PID
	if d, is := w.driver(r).(guarded); is {
		root = d.Guardian(w.id)
	}
	if root <= 0 {
		return ""
	}
	at, err := guardian.Listening(root)
	if err != nil {
		return ""
	}
	return listensText(at, port)
}

// maxListens is how many ports are named.
const maxListens = 8

func listensText(at []string, port int) string {
	more := ""
	switch {
	case slices.Contains(at, strconv.Itoa(port)):
		return ""
	case len(at) == 0:
		return "it listens on no port"
	case len(at) > maxListens:
		at, more = at[:maxListens], " and more"
	}
	return "it listens on " + strings.Join(at, ", ") + more
}
