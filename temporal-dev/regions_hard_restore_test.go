//go:build slow

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// hardBackup is a copy of a region's database, and what is needed to tell what its restore undoes.
type hardBackup struct {
	at   time.Time
	last int64           // number of the last event
	owns map[string]bool // projects
}

// handOver has the project's owner hand it over to another region, or has a region claim it by force.
func (h *hard) handOver(at, other *hardRegion, force bool) {
	to := other
	if force {
		to = at
	}
	for _, project := range h.owned(at, other.name, force) {
		if force && !hardClaimed(project) {
			continue
		}
		in := api.HandOverRequest{To: to.name, Force: force}
		if _, err := at.api.HandOver(h.t.Context(), fleet.ProjectKey(fleet.ProjectName(project)), in, api.Mutation{}); err == nil {
			h.t.Logf("%s asks for %s to be owned by %s, by force: %t", at.name, project, to.name, force)
			return
		}
	}
}

// owned are the projects that a region owns, or, to claim one, that another one owns as far as it knows.
func (h *hard) owned(at *hardRegion, other string, force bool) (names []string) {
	owner := at.name
	if force {
		owner = other
	}
	rows, err := at.pg.Query(h.t.Context(), `SELECT name FROM shared WHERE kind = 'project' AND name LIKE 'hard-%' AND owner = $1 ORDER BY random()`, owner)
	if err != nil {
		return nil // its database is down
	}
	names, _ = pgx.CollectRows(rows, pgx.RowTo[string]) // none while it is down
	return names
}

// projectsOf are the projects that a region owns, as any region knows them.
func (h *hard) projectsOf(owner string) map[string]bool {
	out := map[string]bool{}
	for _, r := range h.regions {
		rows, err := r.pg.Query(h.t.Context(), `SELECT region || '/' || name FROM shared WHERE kind = 'project' AND name LIKE 'hard-%' AND owner = $1`, owner)
		if err != nil {
			continue // it is down
		}
		names, _ := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, name := range names {
			out[name] = true
		}
	}
	return out
}

// backUpOrRestore copies the database of a region away, or puts the copy back and raises the era: each copy once, since peers refuse
// two eras of one number. What the region claimed since then would be owned by nobody until an operator claims it; that is not played.
func (h *hard) backUpOrRestore(at *hardRegion) {
	at.alone.Lock()
	defer at.alone.Unlock()
	kept, live := filepath.Join(filepath.Dir(at.data), "kept"), filepath.Join(at.data, "postgres")
	at.order(h.t, "stop", serverName)
	back := at.backup
	if back != nil {
		for project := range h.projectsOf(at.name) {
			if !back.owns[project] {
				back = nil
				break
			}
		}
	}
	if back == nil {
		b := &hardBackup{at: time.Now(), owns: h.projectsOf(at.name)}
		require.NoError(h.t, at.pg.QueryRow(h.t.Context(), `SELECT max(seq) FROM events`).Scan(&b.last))
		at.order(h.t, "stop", postgresName)
		require.NoError(h.t, os.RemoveAll(kept))
		require.NoError(h.t, exec.Command("cp", "-a", live, kept).Run())
		at.order(h.t, "start", postgresName)
		at.order(h.t, "start", serverName)
		at.backup = b
		h.t.Logf("%s is backed up", at.name)
		return
	}
	h.undo(at, back)
	at.order(h.t, "stop", postgresName)
	require.NoError(h.t, os.RemoveAll(live))
	require.NoError(h.t, os.Rename(kept, live))
	at.order(h.t, "start", postgresName)
	waitFor(h.t, at.name+"'s database answers", at.pg.Ping)
	path, err := cliProgram()
	require.NoError(h.t, err)
	require.NoError(h.t, at.at.run("", path, "admin", "raise-era", "--database-url", at.databaseURL(h.t), "--region", at.name))
	at.order(h.t, "start", serverName)
	at.backup = nil
	h.mu.Lock()
	h.restored[at.name] = true
	h.mu.Unlock()
	h.t.Logf("%s is restored to its backup of %v ago", at.name, time.Since(back.at).Round(time.Second))
}

// hardHad is what regions have of states that an owner made after an event; a deletion has no maxReplicas.
const hardHad = `SELECT name, coalesce(spec ->> 'maxReplicas', '') FROM shared WHERE kind = 'pool' AND owner = $1 AND number > $2
	UNION ALL SELECT name, '' FROM copy_markers WHERE kind = 'pool' AND owner = $1 AND number > $2 AND reason = 'deleted'`

// undo notes what a restore undoes, and which of it another region has, so that it is listed there.
func (h *hard) undo(at *hardRegion, back *hardBackup) {
	had := map[hardState]bool{}
	for name, r := range h.regions {
		if name == at.name {
			continue
		}
		rows, err := r.pg.Query(h.t.Context(), hardHad, at.name, back.last)
		if err != nil {
			continue // it is down: what it has is not checked
		}
		all, _ := pgx.CollectRows(rows, pgx.RowToStructByPos[hardState]) // the same
		for _, s := range all {
			had[s] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.writers {
		if w.at != at {
			continue
		}
		for _, o := range w.objects {
			if o.acked.After(back.at) {
				o.undone, o.had = true, had[o.state()]
			}
		}
	}
}

// hardState is a state of an object, as a list of lost writes has it.
type hardState struct{ Name, MaxReplicas string }

func (o *hardObject) state() hardState {
	if !o.there {
		return hardState{o.name, ""}
	}
	return hardState{o.name, strconv.Itoa(o.number)}
}

// listed are the writes that regions list as lost.
func (h *hard) listed() map[hardState]bool {
	h.t.Helper()
	out := map[hardState]bool{}
	for _, r := range h.regions {
		rows, err := r.pg.Query(h.t.Context(), `SELECT name, coalesce(object -> 'spec' ->> 'maxReplicas', '') FROM lost_writes WHERE kind = 'pool'`)
		require.NoError(h.t, err)
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[hardState])
		require.NoError(h.t, err)
		for _, s := range all {
			out[s] = true
		}
	}
	return out
}

// mayLose: a region was restored, or claimed by force.
func (h *hard) mayLose() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.restored) > 0 || h.faults[hardForced] > 0
}

// restoredNames are the regions that were.
func (h *hard) restoredNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.restored))
}
