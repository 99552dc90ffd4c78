package workflows

import (
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FleetInput names the fleet change. The deadlines travel along, as of an instance.
type FleetInput struct {
	Fleet  fleet.FleetName `json:"fleet"`
	Limits DeliveryLimits  `json:"limits,omitzero"`
}

// FleetStatus answers the status query: what is seen, and why the entity waits (X8).
type FleetStatus struct {
	Seen     fleet.FleetSeen  `json:"seen"`
	Rule     string           `json:"rule"`
	InFlight []fleet.SiteName `json:"inFlight,omitempty"`
	Until    *time.Time       `json:"until,omitempty"`
}

var fleets *activities.Fleets

// Fleet is the entity of one fleet change: wave by wave it has sites delivered to, some at a
// time, and stops, waits or ends as decide.Fleet says. docs/fleets.md draws it.
func Fleet(ctx workflow.Context, in FleetInput) error {
	f, err := newFleet(ctx, in)
	if err != nil {
		return err
	}
	for {
		if err := f.look(ctx); err != nil {
			return err
		}
		if f.full(ctx) && len(f.sites) == 0 {
			return workflow.NewContinueAsNewError(ctx, TypeFleet, in)
		}
		ended, err := f.act(ctx)
		if err != nil {
			return err
		}
		if ended && !f.woken() {
			return nil
		}
	}
}

// fleetEntity is the run of an entity. What it remembers beside the store's truth is who is
// being delivered to.
type fleetEntity struct {
	in     FleetInput
	wake   workflow.ReceiveChannel
	seen   fleet.FleetSeen
	next   decide.FleetAction
	sites  []*siteUnderWay // in the order of names
	failed map[fleet.SiteName]int
	pause  bool                    // before a site that failed is begun again
	closed map[fleet.SiteName]bool // found so by a batch, and not seen since
	broken string
}

// siteUnderWay is a site whose part of the wave is being delivered.
type siteUnderWay struct {
	site  fleet.SiteName
	ended workflow.ChildWorkflowFuture
}

func newFleet(ctx workflow.Context, in FleetInput) (*fleetEntity, error) {
	in.Limits = in.Limits.orDefault()
	f := &fleetEntity{in: in, wake: workflow.GetSignalChannel(ctx, SignalWake), failed: map[fleet.SiteName]int{}, closed: map[fleet.SiteName]bool{}}
	return f, workflow.SetQueryHandler(ctx, QueryStatus, func() (FleetStatus, error) { return f.status(), nil })
}

// full says that the history is long: no more sites are begun, and once those under way have
// ended the entity goes on in a new run.
func (f *fleetEntity) full(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// look drains the signals first: what they announced is in what is read after them.
func (f *fleetEntity) look(ctx workflow.Context) error {
	f.woken()
	in := fleet.FleetVisit{Fleet: f.in.Fleet, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	f.seen = fleet.FleetSeen{}
	if err := insist(ctx, fleets.SeeFleet, in, &f.seen); err != nil {
		return err
	}
	for _, s := range f.seen.Sites {
		if s.Closed {
			delete(f.closed, s.Site)
		}
	}
	f.next = decide.Fleet(f.seen, f.run())
	workflow.SetCurrentDetails(ctx, f.details())
	return nil
}

func (f *fleetEntity) woken() bool {
	woken := false
	for f.wake.ReceiveAsync(nil) {
		woken = true
	}
	return woken
}

func (f *fleetEntity) run() decide.FleetRun {
	r := decide.FleetRun{Broken: f.broken}
	for _, s := range f.sites {
		r.InFlight = append(r.InFlight, s.site)
	}
	return r
}

// act carries out what was decided, and says whether there is nothing left to do.
func (f *fleetEntity) act(ctx workflow.Context) (ended bool, err error) {
	switch f.next.Do {
	case decide.FleetNothing:
		return true, nil
	case decide.FleetDeliver:
		if f.doubtful() {
			return false, workflow.Sleep(ctx, siteGap)
		}
		if !f.full(ctx) {
			f.begin(ctx, f.next.Sites)
		}
		return false, f.wait(ctx, f.next.Until)
	case decide.FleetWait:
		return false, f.wait(ctx, f.next.Until)
	case decide.FleetAdvance:
		return false, f.move(ctx, "")
	case decide.FleetStop:
		return false, f.move(ctx, fleet.FleetStop)
	case decide.FleetFinish:
		return false, f.move(ctx, fleet.FleetFinish)
	case decide.FleetCancel:
		return false, f.move(ctx, fleet.FleetCancel)
	}
	return false, nil
}

// doubtful says that a site would be begun which a batch just found closed: were their clocks
// apart, they would go round without a rest.
func (f *fleetEntity) doubtful() bool {
	doubt := false
	for _, s := range f.next.Sites {
		doubt = doubt || f.closed[s.Site]
	}
	clear(f.closed)
	return doubt
}

func (f *fleetEntity) move(ctx workflow.Context, on fleet.FleetEvent) error {
	f.failed, f.broken = map[fleet.SiteName]int{}, ""
	return insist(ctx, fleets.MoveFleet, fleet.FleetMove{
		Fleet: f.in.Fleet, Run: f.seen.Run, Wave: f.seen.Wave, Turn: f.seen.Turn,
		On: on, Reason: f.next.Reason, Message: f.next.Message,
	}, nil)
}

// begin has sites delivered to, each by a child of its own.
func (f *fleetEntity) begin(ctx workflow.Context, sites []decide.SiteBegin) {
	for _, s := range sites {
		child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:          FleetSiteID(f.in.Fleet, f.seen.Run, f.seen.Wave, s.Site),
			TaskQueue:           QueueServers,
			WorkflowTaskTimeout: taskTimeout,
			// Who goes on after this entity was ended begins anew; the batch is made good by the sweep.
			ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_TERMINATE,
			TypedSearchAttributes: temporal.NewSearchAttributes(
				temporal.NewSearchAttributeKeyKeyword(AttributeSite).ValueSet(string(s.Site))),
		})
		ended := workflow.ExecuteChildWorkflow(child, TypeFleetSite, FleetSiteInput{
			Fleet: f.in.Fleet, Run: f.seen.Run, Wave: f.seen.Wave, Site: s.Site, Mode: s.Mode, Size: f.seen.BatchSize, Limits: f.in.Limits,
		})
		f.sites = append(f.sites, &siteUnderWay{s.Site, ended})
	}
	slices.SortFunc(f.sites, func(a, b *siteUnderWay) int { return compareNames(a.site, b.site) })
}

// siteGap is the pause before a site is begun again that failed, or whose window is in doubt.
const siteGap = 5 * time.Second

// wait ends when a site has ended, when it is woken, or at a time.
func (f *fleetEntity) wait(ctx workflow.Context, until time.Time) error {
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var failed error
	s := workflow.NewSelector(ctx).
		AddReceive(f.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { failed = ctx.Err() })
	for _, site := range f.sites {
		s.AddFuture(site.ended, func(workflow.Future) { f.siteEnded(ctx, site) })
	}
	if !until.IsZero() {
		// The database's clock set the time; at least a moment, so that clocks apart do not spin.
		s.AddFuture(workflow.NewTimer(timing, max(time.Second, until.Sub(f.seen.At))), func(workflow.Future) {})
	}
	s.Select(ctx)
	if failed == nil && f.pause {
		f.pause = false
		return workflow.Sleep(ctx, siteGap)
	}
	return failed
}

// siteTries is how often a site is begun again that failed as a whole, and not by its items.
const siteTries = 3

func (f *fleetEntity) siteEnded(ctx workflow.Context, s *siteUnderWay) {
	f.sites = slices.DeleteFunc(f.sites, func(o *siteUnderWay) bool { return o == s })
	var out FleetSiteResult
	err := s.ended.Get(ctx, &out)
	if err == nil {
		delete(f.failed, s.site)
		if out.Closed {
			f.closed[s.site] = true
		}
		return
	}
	f.pause = true
	if f.failed[s.site]++; f.failed[s.site] >= siteTries {
		f.broken = fmt.Sprintf("site %s could not be delivered to: %s", s.site, kindOf(err))
	}
}

// status answers the status query.
func (f *fleetEntity) status() FleetStatus {
	s := FleetStatus{Seen: f.seen, Rule: f.next.Rule, InFlight: f.run().InFlight}
	if !f.next.Until.IsZero() {
		s.Until = &f.next.Until
	}
	return s
}

// details are what people read in Temporal Web.
func (f *fleetEntity) details() string {
	c := f.seen.Counts
	return fmt.Sprintf("**%s**: %s, run %d, wave %d of %d: %d of %d good, %d failed, %d staged, %d waiting",
		f.next.Rule, f.seen.State, f.seen.Run, f.seen.Wave, f.seen.Waves, c.Good(), c.Total, c.Failed, c.Staged, c.Waiting+c.Delivering)
}
