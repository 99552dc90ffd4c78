package decide

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// windowDays is how far ahead to look for an opening: a week, and the day that it begins on.
const windowDays = 8

// WindowAt decides whether a site may switch now (N100), and if not, when it next may: zero if no window opens
// within eight days. A site without windows may always switch; with several windows, one open is enough. A window
// in an unknown time zone never opens.
func WindowAt(windows []fleet.Window, site fleet.SiteName, now time.Time, zone func(string) (*time.Location, error)) (open bool, opens time.Time) {
	open = true
	for _, w := range windows {
		if len(w.Sites) > 0 && !slices.Contains(w.Sites, site) {
			continue
		}
		open = false
		in, next := openings(w, now, zone)
		if in {
			return true, time.Time{}
		}
		if !next.IsZero() && (opens.IsZero() || next.Before(opens)) {
			opens = next
		}
	}
	return open, opens
}

// SiteMayGoOn decides whether a site's next batch may start in a mode. Fetching is always allowed, switching only
// in a window (N100), even if the site began in one.
func SiteMayGoOn(mode SiteMode, windows []fleet.Window, site fleet.SiteName, now time.Time, zone func(string) (*time.Location, error)) bool {
	open, _ := WindowAt(windows, site, now, zone)
	return open || mode == SiteStage
}

// openings checks one window, day by day in its time zone: yesterday's may still be open.
func openings(w fleet.Window, now time.Time, zone func(string) (*time.Location, error)) (open bool, next time.Time) {
	name := w.Zone
	if name == "" {
		name = "UTC"
	}
	at, err := zone(name)
	if err != nil {
		return false, time.Time{}
	}
	local, until := now.In(at), now.AddDate(0, 0, windowDays)
	for day := -1; day <= windowDays; day++ {
		from, to := opening(w, local.AddDate(0, 0, day), at)
		switch {
		case from.IsZero() || !to.After(now):
		case !from.After(now):
			return true, time.Time{}
		case !from.After(until):
			return false, from
		}
	}
	return false, time.Time{}
}

// opening is when the window that begins on a day opens and closes; zero if none begins. Times are local: a window
// that a clock change skips does not open that day.
func opening(w fleet.Window, day time.Time, at *time.Location) (from, to time.Time) {
	begin, errFrom := fleet.ParseClock(w.From)
	end, errTo := fleet.ParseClock(w.To)
	if errFrom != nil || errTo != nil || !w.On(day.Weekday()) {
		return time.Time{}, time.Time{}
	}
	from = clockOn(day, begin, at)
	if end <= begin {
		end += 24 * time.Hour
	}
	if to = clockOn(day, end, at); !to.After(from) {
		return time.Time{}, time.Time{}
	}
	return from, to
}

// clockOn is the time at which local clocks show a time of that day, or of the day after.
func clockOn(day time.Time, clock time.Duration, at *time.Location) time.Time {
	minutes := int(clock / time.Minute)
	return time.Date(day.Year(), day.Month(), day.Day(), minutes/60, minutes%60, 0, 0, at)
}

// FirstOpening is the first opening of the windows of sites that are closed now; zero if there is none.
func FirstOpening(windows []fleet.Window, sites []fleet.SiteName, now time.Time, zone func(string) (*time.Location, error)) time.Time {
	var first time.Time
	for _, site := range sites {
		open, opens := WindowAt(windows, site, now, zone)
		if !open && !opens.IsZero() && (first.IsZero() || opens.Before(first)) {
			first = opens
		}
	}
	return first
}
