//go:build slow

package main

import (
	"context"
	"encoding/json"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	drillNode     = "node"
	drillSecond   = "server-2"
	drillStrikers = 2
	// A storm and the calm after it: in the calm, what a rollout does is judged by itself.
	drillStorm, drillCalm = 40 * time.Second, 20 * time.Second
	drillAim              = 3 * time.Second // that a striker waits for a phase
	drillLongestPause     = 7 * time.Second // longer than a lease
)

// The phases of a rollout, and what a kill can hit besides: a deployment without one, and the time between a commit and its wake.
const (
	phaseNone   = "none"
	phaseUntold = "between commit and wake"
)

var (
	drillKinds  = []string{serverName, drillNode, temporalName, postgresName}
	drillAimed  = []string{phaseNone, string(fleet.RolloutDeploying), string(fleet.RolloutPrepaused), string(fleet.RolloutPaused), string(fleet.RolloutCanceling)}
	drillPhases = append(slices.Clone(drillAimed), phaseUntold)
)

// victim is a process that its supervisor starts again.
type victim struct {
	name string
	pid  func() int // 0 while none runs
}

// child is one of the region's own processes.
func (h *drill) child(name string) func() int {
	r := &hardRegion{stack: h.stack}
	return func() int { return r.running(name) }
}

// second starts another server, in a process of its own.
func (h *drill) second() drillServer {
	t := h.t
	t.Helper()
	chosen, err := choose([]listener{{name: "other", want: loopback + ":0"}}, nil)
	require.NoError(t, err)
	url := chosen.url("other")
	text, err := json.Marshal(serverInput{
		Database: h.database, Temporal: h.doc.Temporal, Listen: chosen.dial("other"), Link: h.otherLink, URL: url, Web: h.doc.Web,
		Token: h.doc.Token, Pace: e2ePace, Region: regionName, Name: drillSecond,
	})
	require.NoError(t, err)
	p := newProcess(spec{
		name: drillSecond, log: filepath.Join(h.data, "logs", drillSecond+".log"), rank: rankServer, onParentDeath: syscall.SIGKILL,
		end: []stopSignal{{syscall.SIGTERM, childStop}},
		command: func(context.Context) (*exec.Cmd, error) {
			cmd := exec.Command(os.Args[0], childServer)
			cmd.Stdin = strings.NewReader(string(text))
			return cmd, nil
		},
	}, func(string, ...any) {}, func() {})
	t.Cleanup(func() { p.close(nil) })
	require.NoError(t, p.start(t.Context()))
	waitFor(t, "the second server is ready", func(ctx context.Context) error { return answers(ctx, url+"/readyz") })
	client, err := api.NewClient(url, h.doc.Token)
	require.NoError(t, err)
	return drillServer{drillSecond, url, client, func() int { return p.snapshot().PID }}
}

// weather lets storms and calms follow each other.
func (h *drill) weather(ctx context.Context) {
	for ctx.Err() == nil {
		h.storms.Store(true)
		_ = pause.For(ctx, drillStorm) // the loop looks at the context
		h.storms.Store(false)
		_ = pause.For(ctx, drillCalm)
	}
}

// strikes kills processes, and pauses some, until there were as many as wanted. Kills are spread over the storms.
func (h *drill) strikes(draw *mathrand.Rand) {
	ctx, kinds := h.t.Context(), strings.Split(*drillOf, ",")
	share := float64(drillStorm) / float64(drillStorm+drillCalm)
	gap := time.Duration(float64(*drillFor) * share / float64(*drillKills) * drillStrikers)
	for h.left.Load() > 0 && ctx.Err() == nil {
		next := time.Now().Add(time.Duration(draw.Int64N(int64(2 * gap))))
		if h.storms.Load() {
			h.strike(ctx, draw, kinds[draw.IntN(len(kinds))])
		}
		_ = pause.For(ctx, max(time.Until(next), 100*time.Millisecond)) // the loop looks at the context
	}
}

// strike aims at the phase in which this kind was killed least.
func (h *drill) strike(ctx context.Context, draw *mathrand.Rand, kind string) {
	if kind == temporalName {
		h.stalled.Lock()
		defer h.stalled.Unlock()
	}
	v := h.victims[kind][draw.IntN(len(h.victims[kind]))]
	if draw.IntN(5) == 0 {
		h.suspend(ctx, kind, v, time.Duration(draw.Int64N(int64(drillLongestPause))))
		return
	}
	phase := h.aim(ctx, kind)
	if h.kill(v) {
		h.hit(kind, phase)
		h.t.Logf("%s killed, in phase %s", v.name, phase)
	}
}

// kill is kill -9, if it runs.
func (h *drill) kill(v victim) bool {
	pid := v.pid()
	if pid == 0 || !alive(pid) || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return false
	}
	h.failed.Store(time.Now().UnixNano())
	return true
}

func (h *drill) hit(kind, phase string) {
	h.left.Add(-1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kills[kind] == nil {
		h.kills[kind] = map[string]int{}
	}
	h.kills[kind][phase]++
}

// aim waits for a deployment in the phase that this kind of process was killed in least, and takes another that there is now if none comes.
func (h *drill) aim(ctx context.Context, kind string) (phase string) {
	h.mu.Lock()
	order := slices.SortedStableFunc(slices.Values(drillAimed), func(a, b string) int { return h.kills[kind][a] - h.kills[kind][b] })
	h.mu.Unlock()
	err := pollEvery(ctx, pollInterval, drillAim, func(ctx context.Context) error {
		return unless(slices.Contains(h.phases(ctx), order[0]))
	})
	if err == nil {
		return order[0]
	}
	now := h.phases(ctx)
	if i := slices.IndexFunc(order, func(p string) bool { return slices.Contains(now, p) }); i >= 0 {
		return order[i]
	}
	return phaseNone // the database is down
}

// phases are those in which deployments are.
func (h *drill) phases(ctx context.Context) (all []string) {
	rows, err := h.pg.Query(ctx, `SELECT DISTINCT coalesce(r.state, $1) FROM deployments d LEFT JOIN rollouts r ON r.deployment = d.name AND r.ended_at IS NULL`, phaseNone)
	if err != nil {
		return nil
	}
	all, _ = pgx.CollectRows(rows, pgx.RowTo[string]) // none while it is down
	return all
}

// suspend has a process stand still for a while.
func (h *drill) suspend(ctx context.Context, kind string, v victim, lasts time.Duration) {
	goOn := h.halt(kind, v)
	if goOn == nil {
		return
	}
	defer goOn()
	h.note(h.pauses, kind)
	h.t.Logf("%s paused for %v", v.name, lasts.Round(time.Millisecond))
	_ = pause.For(ctx, lasts) // the end of the test ends it too
}

// halt stops a process, of Postgres with its own processes; nil if none runs.
func (h *drill) halt(kind string, v victim) (goOn func()) {
	pid := v.pid()
	if pid == 0 {
		return nil
	}
	all := []int{pid}
	if kind == postgresName {
		all = below(pid)
	}
	h.failed.Store(time.Now().UnixNano())
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // some may have ended
	}
	return func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		h.failed.Store(time.Now().UnixNano())
	}
}

// untold has a server answer while Temporal stands still, and kills it before it could wake anybody: only the outbox still knows.
func (h *drill) untold(s drillServer, subject string, ask func() error) error {
	h.stalled.Lock()
	defer h.stalled.Unlock()
	goOn := h.halt(temporalName, h.victims[temporalName][0])
	if goOn == nil {
		return ask()
	}
	defer goOn()
	if err := ask(); err != nil {
		return err
	}
	owed, err := h.count(h.t.Context(), `SELECT count(*) FROM outbox WHERE subject = $1`, subject)
	if h.kill(victim{s.name, s.pid}) && err == nil && owed > 0 {
		h.hit(serverName, phaseUntold)
		h.t.Logf("%s killed, %s", s.name, phaseUntold)
	}
	return nil
}

// requireHit wants each kind to have been killed in each phase, if there were kills enough for that.
func (h *drill) requireHit() {
	kinds := strings.Split(*drillOf, ",")
	if *drillKills < 20*len(kinds) {
		return
	}
	for _, kind := range kinds {
		for _, phase := range drillAimed {
			require.NotZero(h.t, h.kills[kind][phase], "%s was never killed in phase %s", kind, phase)
		}
	}
	if slices.Contains(kinds, serverName) {
		require.NotZero(h.t, h.kills[serverName][phaseUntold], "no server was killed %s", phaseUntold)
	}
}
