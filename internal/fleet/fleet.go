package fleet

import (
	"fmt"
	"time"
)

// FleetName names a fleet change.
type FleetName string

// KindFleet is the kind of a declared fleet change.
const KindFleet ObjectKind = "fleet"

// OperationFleet is a request to run, resume, retry or roll back a fleet change.
const OperationFleet OperationKind = "fleet"

// FleetSubject is the subject of a fleet change.
func FleetSubject(name FleetName) string { return EntityFleet.Subject(string(name)) }

// FleetKey names a fleet change.
func FleetKey(name FleetName) ObjectKey { return ObjectKey{Kind: KindFleet, Name: string(name)} }

// FleetMember is an instance that a fleet change selected.
type FleetMember struct {
	Site     SiteName
	Instance InstanceName
}

// FleetSpec declares one change of many instances, and how it moves over them (N99).
type FleetSpec struct {
	Change   FleetChange   `json:"change"`
	Selector FleetSelector `json:"selector"`
	// Waves run in order; instances in none of them form a last one.
	Waves []FleetWave `json:"waves,omitempty"`
	// SuccessThreshold is the percentage of a wave's instances that must succeed before the
	// next wave begins (default 100 less ErrorThreshold).
	SuccessThreshold float64 `json:"successThreshold"`
	// ErrorThreshold is the percentage of a wave's instances that may fail; one more stops the
	// change at once (default 0).
	ErrorThreshold float64 `json:"errorThreshold"`
	// MinRunSeconds is how long the commands that a wave started must run before it ends (default 10, at most half of
	// DeadlineSeconds; 0 waits for nothing).
	MinRunSeconds *int64 `json:"minRunSeconds,omitempty"`
	// Windows say when sites may switch: outside of them a change is fetched and waits (N100).
	Windows []Window `json:"windows,omitempty"`
	// BatchSize is how many instances go in one delivery (default and limit 1000).
	BatchSize int `json:"batchSize"`
	// SitesAtOnce is how many sites get deliveries at the same time (default 4, limit 64).
	SitesAtOnce int `json:"sitesAtOnce"`
	// DeadlineSeconds limits the whole change (default one day).
	DeadlineSeconds int64 `json:"deadlineSeconds"`
}

// FleetChange is the change to each instance: the template generation that it pins, or a merge patch (RFC 7396) of
// its overrides (of its config if it has no template), or both.
type FleetChange struct {
	Template           TemplateName `json:"template,omitempty"`
	TemplateGeneration int64        `json:"templateGeneration,omitempty"`
	Patch              *Content     `json:"patch,omitempty"`
}

// FleetSelector picks instances: at one of Sites (any if empty), with all Labels, and with the template of the
// change if that names one.
type FleetSelector struct {
	Sites  []SiteName        `json:"sites,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// FleetWave takes instances, ordered by site and name, until Percent (default 100) of those selected at its Sites
// (default all) are in this wave or an earlier one.
type FleetWave struct {
	Sites   []SiteName `json:"sites,omitempty"`
	Percent float64    `json:"percent,omitempty"`
}

// Window is a recurring time in which sites may switch: on Days ("mon" to "sun", default all) from From to To
// ("22:00", past midnight if To is not later) in Zone (default UTC).
type Window struct {
	Sites []SiteName `json:"sites,omitempty"`
	Days  []string   `json:"days,omitempty"`
	From  string     `json:"from"`
	To    string     `json:"to"`
	Zone  string     `json:"zone,omitempty"`
}

// Defaults and limits of a FleetSpec.
const (
	DefaultSitesAtOnce   = 4
	MaxSitesAtOnce       = 64
	MaxFleetWaves        = 100
	MaxFleetWindows      = 100
	MaxFleetSites        = 1000
	DefaultFleetDeadline = 24 * time.Hour
	MaxFleetDeadline     = 90 * 24 * time.Hour
	DefaultFleetMinRun   = 10 * time.Second
	MaxFleetMinRun       = time.Hour
)

// WithDefaults fills in omitted values.
func (s FleetSpec) WithDefaults() FleetSpec {
	if s.SuccessThreshold == 0 {
		s.SuccessThreshold = 100 - s.ErrorThreshold
	}
	if s.BatchSize == 0 {
		s.BatchSize = MaxBatchItems
	}
	if s.SitesAtOnce == 0 {
		s.SitesAtOnce = DefaultSitesAtOnce
	}
	if s.DeadlineSeconds == 0 {
		s.DeadlineSeconds = int64(DefaultFleetDeadline / time.Second)
	}
	if s.MinRunSeconds == nil {
		s.MinRunSeconds = new(min(int64(DefaultFleetMinRun/time.Second), s.DeadlineSeconds/2))
	}
	waves := make([]FleetWave, len(s.Waves))
	for i, w := range s.Waves {
		if w.Percent == 0 {
			w.Percent = 100
		}
		waves[i] = w
	}
	if len(waves) > 0 {
		s.Waves = waves
	}
	return s
}

// Deadline is how long the whole change may take.
func (s FleetSpec) Deadline() time.Duration { return time.Duration(s.DeadlineSeconds) * time.Second }

// MinRun is how long the commands that a wave started must run; 0 for a run of a version without it.
func (s FleetSpec) MinRun() time.Duration {
	if s.MinRunSeconds == nil {
		return 0
	}
	return time.Duration(*s.MinRunSeconds) * time.Second
}

// Validate checks a spec with its defaults, without the region's other objects. The caller checks time zones.
func (s FleetSpec) Validate() error {
	if s.Change.Template == "" && s.Change.Patch == nil {
		return Errorf(Invalid, "change is required").At("/change").
			WithHint(`give "template" (with "templateGeneration"), "patch", or both`)
	}
	if s.Change.Template != "" {
		if err := s.Change.Template.Validate("/change/template"); err != nil {
			return err
		}
	} else if s.Change.TemplateGeneration != 0 {
		return Errorf(Invalid, "templateGeneration needs a template").At("/change/templateGeneration").WithHint(`give "template" as well`)
	}
	if err := validateSites("/selector/sites", s.Selector.Sites); err != nil {
		return err
	}
	if err := ValidateLabels("/selector/labels", s.Selector.Labels); err != nil {
		return err
	}
	if err := s.validateWaves(); err != nil {
		return err
	}
	if err := s.validateBounds(); err != nil {
		return err
	}
	if len(s.Windows) > MaxFleetWindows {
		return Errorf(Invalid, "%d windows given; the limit is %d", len(s.Windows), MaxFleetWindows).At("/windows")
	}
	for i, w := range s.Windows {
		if err := w.validate(fmt.Sprintf("/windows/%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (s FleetSpec) validateWaves() error {
	if len(s.Waves) > MaxFleetWaves {
		return Errorf(Invalid, "%d waves given; the limit is %d", len(s.Waves), MaxFleetWaves).At("/waves")
	}
	for i, w := range s.Waves {
		at := fmt.Sprintf("/waves/%d", i)
		if err := validateSites(at+"/sites", w.Sites); err != nil {
			return err
		}
		if !(w.Percent > 0 && w.Percent <= 100) {
			return Errorf(Invalid, "invalid percentage %g", w.Percent).At(at + "/percent").WithHint("use more than 0, up to 100")
		}
	}
	return nil
}

func (s FleetSpec) validateBounds() error {
	switch {
	case !(s.ErrorThreshold >= 0 && s.ErrorThreshold <= 100):
		return Errorf(Invalid, "invalid percentage %g", s.ErrorThreshold).At("/errorThreshold").WithHint("use 0 to 100")
	case !(s.SuccessThreshold >= 0 && s.SuccessThreshold <= 100):
		return Errorf(Invalid, "invalid percentage %g", s.SuccessThreshold).At("/successThreshold").WithHint("use 0 to 100")
	case s.BatchSize < 1 || s.BatchSize > MaxBatchItems:
		return Errorf(Invalid, "invalid batch size %d", s.BatchSize).At("/batchSize").WithHint(fmt.Sprintf("use 1 to %d", MaxBatchItems))
	case s.SitesAtOnce < 1 || s.SitesAtOnce > MaxSitesAtOnce:
		return Errorf(Invalid, "invalid number of concurrent sites %d", s.SitesAtOnce).At("/sitesAtOnce").WithHint(fmt.Sprintf("use 1 to %d", MaxSitesAtOnce))
	case s.DeadlineSeconds < 1 || s.DeadlineSeconds > int64(MaxFleetDeadline/time.Second):
		return Errorf(Invalid, "invalid deadline of %d s", s.DeadlineSeconds).At("/deadlineSeconds").
			WithHint(fmt.Sprintf("use 1 to %d", int64(MaxFleetDeadline/time.Second)))
	case s.MinRun() < 0 || s.MinRun() > MaxFleetMinRun:
		return Errorf(Invalid, "invalid minimum run time of %d s", *s.MinRunSeconds).At("/minRunSeconds").
			WithHint(fmt.Sprintf("use 0 to %d", int64(MaxFleetMinRun/time.Second)))
	case s.MinRun() >= s.Deadline():
		return Errorf(Invalid, "a minimum run time of %d s does not fit into the deadline of %d s", *s.MinRunSeconds, s.DeadlineSeconds).
			At("/minRunSeconds").WithHint("use less than deadlineSeconds")
	}
	return nil
}

func validateSites(at string, sites []SiteName) error {
	if len(sites) > MaxFleetSites {
		return Errorf(Invalid, "%d sites given; the limit is %d", len(sites), MaxFleetSites).At(at)
	}
	for i, site := range sites {
		if err := ValidateName(fmt.Sprintf("%s/%d", at, i), string(site)); err != nil {
			return err
		}
	}
	return nil
}

var weekdays = map[string]time.Weekday{
	"sun": time.Sunday, "mon": time.Monday, "tue": time.Tuesday, "wed": time.Wednesday,
	"thu": time.Thursday, "fri": time.Friday, "sat": time.Saturday,
}

func (w Window) validate(at string) error {
	if err := validateSites(at+"/sites", w.Sites); err != nil {
		return err
	}
	for i, d := range w.Days {
		if _, is := weekdays[d]; !is {
			return Errorf(Invalid, "unknown day %.20q; use mon, tue, wed, thu, fri, sat or sun", d).At(fmt.Sprintf("%s/days/%d", at, i))
		}
	}
	for field, text := range map[string]string{"/from": w.From, "/to": w.To} {
		if _, err := ParseClock(text); err != nil {
			return Errorf(Invalid, "invalid time of day %.20q: want HH:MM, 00:00 to 23:59", text).At(at + field)
		}
	}
	return nil
}

// ParseClock parses "22:00" as the time since midnight.
func ParseClock(text string) (time.Duration, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, Errorf(Invalid, "invalid time of day %.20q: want HH:MM, 00:00 to 23:59", text)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// On reports whether the window begins on a day of the week.
func (w Window) On(day time.Weekday) bool {
	if len(w.Days) == 0 {
		return true
	}
	for _, d := range w.Days {
		if weekdays[d] == day {
			return true
		}
	}
	return false
}

// Bodies lists the bodies that the spec refers to; the write protects them from collection.
func (s FleetSpec) Bodies() []Hash {
	if s.Change.Patch == nil {
		return nil
	}
	return []Hash{s.Change.Patch.Hash}
}
