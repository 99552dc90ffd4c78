package decide_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func when(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err) //nolint:forbidigo // a typing error in a table
	}
	return t
}

const berlin = "Europe/Berlin"

// N100
func TestWindowAt(t *testing.T) {
	t.Parallel()
	night := fleet.Window{From: "22:00", To: "04:00"}
	day := fleet.Window{From: "09:00", To: "17:00"}
	friday := fleet.Window{From: "22:00", To: "04:00", Days: []string{"fri"}}
	there := func(w fleet.Window, zone string) fleet.Window { w.Zone = zone; return w }
	elsewhere := fleet.Window{From: "09:00", To: "10:00", Sites: []fleet.SiteName{"other"}}
	for _, c := range []struct {
		what    string
		windows []fleet.Window
		now     string
		opens   string // "" when it is open
	}{
		{"no window is always open", nil, "2026-03-02T03:00:00Z", ""},
		{"one of another site is none", []fleet.Window{elsewhere}, "2026-03-02T03:00:00Z", ""},
		{"inside", []fleet.Window{day}, "2026-03-02T12:00:00Z", ""},
		{"it opens on time", []fleet.Window{day}, "2026-03-02T09:00:00Z", ""},
		{"it closes on time", []fleet.Window{day}, "2026-03-02T17:00:00Z", "2026-03-03T09:00:00Z"},
		{"before", []fleet.Window{day}, "2026-03-02T08:59:59Z", "2026-03-02T09:00:00Z"},
		{"the end of one over midnight", []fleet.Window{night}, "2026-03-02T03:59:00Z", ""},
		{"between nights", []fleet.Window{night}, "2026-03-02T04:00:00Z", "2026-03-02T22:00:00Z"},
		{"the day is that on which it begins", []fleet.Window{friday}, "2026-03-07T03:00:00Z", ""},                // saturday
		{"and not that on which it ends", []fleet.Window{friday}, "2026-03-06T03:00:00Z", "2026-03-06T22:00:00Z"}, // friday
		{"a week on", []fleet.Window{friday}, "2026-03-07T04:00:00Z", "2026-03-13T22:00:00Z"},
		{"any of several", []fleet.Window{friday, day}, "2026-03-02T12:00:00Z", ""},
		{"the next of several", []fleet.Window{friday, day}, "2026-03-06T18:00:00Z", "2026-03-06T22:00:00Z"},
		{"its own zone", []fleet.Window{there(day, berlin)}, "2026-01-02T08:00:00Z", ""},
		{"its own zone in summer", []fleet.Window{there(day, berlin)}, "2026-07-02T06:59:00Z", "2026-07-02T07:00:00Z"},
		{"its own day", []fleet.Window{{From: "00:00", To: "01:00", Days: []string{"sat"}, Zone: berlin}}, "2026-01-02T23:30:00Z", ""},
		{"from and to alike are a whole day", []fleet.Window{{From: "12:00", To: "12:00", Days: []string{"mon"}}}, "2026-03-03T11:59:00Z", ""},
		{"over the hour that is skipped", []fleet.Window{there(night, berlin)}, "2026-03-29T01:59:00Z", ""}, // 03:59 there
		{"and closed on time after it", []fleet.Window{there(night, berlin)}, "2026-03-29T02:00:00Z", "2026-03-29T20:00:00Z"},
		{"over the hour that comes twice", []fleet.Window{there(night, berlin)}, "2026-10-25T02:59:00Z", ""}, // 03:59 there
		{"and closed on time after that", []fleet.Window{there(night, berlin)}, "2026-10-25T03:00:00Z", "2026-10-25T21:00:00Z"},
		{"one of a day that the clocks skip opens a week later", []fleet.Window{{From: "02:15", To: "03:00", Days: []string{"sun"}, Zone: berlin}}, "2026-03-28T12:00:00Z", "2026-04-05T00:15:00Z"},
		{"one that the clocks skip does not open", []fleet.Window{{From: "02:15", To: "03:00", Zone: berlin}}, "2026-03-29T00:59:00Z", "2026-03-30T00:15:00Z"},
		{"an unknown zone never opens", []fleet.Window{there(day, "No/Where")}, "2026-03-02T12:00:00Z", "never"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			open, opens := decide.WindowAt(c.windows, "plant", when(c.now), time.LoadLocation)
			require.Equal(t, c.opens == "", open)
			want := ""
			if !opens.IsZero() {
				want = opens.UTC().Format(time.RFC3339)
			} else if !open {
				want = "never"
			}
			require.Equal(t, c.opens, want)
		})
	}
}

// N100
func TestSiteMayGoOn(t *testing.T) {
	t.Parallel()
	day := []fleet.Window{{From: "09:00", To: "17:00"}}
	elsewhere := []fleet.Window{{From: "09:00", To: "17:00", Sites: []fleet.SiteName{"other"}}}
	const inside, outside = "2026-03-02T16:59:59Z", "2026-03-02T17:00:00Z"
	for _, c := range []struct {
		what    string
		mode    decide.SiteMode
		windows []fleet.Window
		now     string
		want    bool
	}{
		{"delivers in its window", decide.SiteDeliver, day, inside, true},
		{"switches in its window", decide.SiteSwitch, day, inside, true},
		{"delivers no more when it closes", decide.SiteDeliver, day, outside, false},
		{"switches no more when it closes", decide.SiteSwitch, day, outside, false},
		{"fetches at any time", decide.SiteStage, day, outside, true},
		{"fetches on when it opens", decide.SiteStage, day, inside, true},
		{"delivers at any time without a window", decide.SiteDeliver, nil, outside, true},
		{"switches at any time in the window of another site", decide.SiteSwitch, elsewhere, outside, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decide.SiteMayGoOn(c.mode, c.windows, "plant", when(c.now), time.LoadLocation))
		})
	}
}

// N100: a window is open just when the clock of its zone is inside, and what is told as the
// next opening is one, with none before it.
func TestWindowByTheClock(t *testing.T) {
	t.Parallel()
	zone := func(name string) (*time.Location, error) {
		if name != "plant" {
			return nil, errors.New("unknown")
		}
		return time.FixedZone("plant", 5*3600+1800), nil
	}
	clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.IntRange(0, 1439).Draw(t, "from"), rapid.IntRange(0, 1439).Draw(t, "to")
		days := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}), rapid.ID[string]).Draw(t, "days")
		w := fleet.Window{From: clock(from), To: clock(to), Days: days, Zone: "plant"}
		now := when("2026-01-01T00:00:00Z").Add(time.Duration(rapid.IntRange(0, 400*24*60).Draw(t, "minute")) * time.Minute)
		inside := func(at time.Time) bool {
			place, _ := zone("plant")
			local := at.In(place)
			m := local.Hour()*60 + local.Minute()
			if from < to {
				return w.On(local.Weekday()) && m >= from && m < to
			}
			return w.On(local.Weekday()) && m >= from || w.On(local.AddDate(0, 0, -1).Weekday()) && m < to
		}
		open, opens := decide.WindowAt([]fleet.Window{w}, "x", now, zone)
		require.Equal(t, inside(now), open)
		if open {
			require.Zero(t, opens)
			return
		}
		require.True(t, opens.After(now) && opens.Before(now.AddDate(0, 0, 8)))
		require.True(t, inside(opens))
		for _, share := range []int64{1, 2, 3} { // somewhere on the way
			require.False(t, inside(now.Add(opens.Sub(now)/4*time.Duration(share)).Truncate(time.Minute)))
		}
		require.False(t, inside(opens.Add(-time.Minute)))
	})
}

// N100
func TestFirstOpening(t *testing.T) {
	t.Parallel()
	windows := []fleet.Window{
		{Sites: []fleet.SiteName{"early"}, From: "09:00", To: "10:00"},
		{Sites: []fleet.SiteName{"late"}, From: "20:00", To: "21:00"},
	}
	now := when("2026-03-02T06:00:00Z")
	first := func(sites ...fleet.SiteName) time.Time {
		return decide.FirstOpening(windows, sites, now, time.LoadLocation)
	}
	require.Equal(t, when("2026-03-02T20:00:00Z"), first("late").UTC())
	require.Equal(t, when("2026-03-02T09:00:00Z"), first("late", "early", "open").UTC())
	require.Zero(t, first("open"))
	require.Zero(t, first())
}
