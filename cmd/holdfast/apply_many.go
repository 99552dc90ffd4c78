package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// applySettings are the flags of apply besides those of every change.
type applySettings struct {
	manySettings
	plan string
}

// many reports whether the objects go to the region as one request.
func (s *applySettings) many() bool { return s.plan != "" || s.set != "" || s.prune }

func (s *applySettings) check(f *mutationFlags) error {
	switch {
	case s.plan != "" && (len(s.files) > 0 || s.set != "" || s.prune || !s.deploy || f.reason != ""):
		return &usageError{errors.New("--plan FILE contains everything: give -f, --apply-set, --prune, --deploy and --reason to holdfast plan")}
	case f.ifMatch != "":
		return &usageError{errors.New("--if-match needs exactly one object; for many use holdfast plan --out and apply --plan")}
	}
	if f.region != "" {
		return &usageError{errors.New("--region: a plan, and --apply-set, take objects of this region only; apply the others without --apply-set")}
	}
	return s.manySettings.check()
}

// applyMany sends all objects as one request, of which the region applies all or nothing.
func (c *cli) applyMany(ctx context.Context, s *applySettings, f *mutationFlags) error {
	if err := s.check(f); err != nil {
		return err
	}
	var request *savedPlan
	var err error
	if s.plan != "" {
		request, err = readPlan(s.plan)
	} else {
		request, err = c.request(&s.manySettings, useApplied, f.reason)
	}
	if err != nil {
		return err
	}
	if f.dryRun {
		request.Request.Plan = nil
		return c.plan(ctx, request, "")
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	if err := request.upload(ctx, c, client); err != nil {
		return err
	}
	applied, err := client.Apply(ctx, request.Request, request.Release, f.mutation())
	if err != nil {
		return err
	}
	ch := &changer{cli: c, client: client, flags: f}
	for _, o := range applied.Objects {
		ch.applied(request, o)
	}
	if f.wait {
		ch.finish(ctx)
	}
	return ch.report()
}

// pastOf is the verb in the line of an applied object.
var pastOf = map[string]string{
	api.PlanCreate: "created", api.PlanChange: "changed", api.PlanDelete: "deleted", api.PlanUnchanged: "unchanged",
}

// applied records the result for one object.
func (ch *changer) applied(s *savedPlan, o api.AppliedObject) {
	ch.outcomes = append(ch.outcomes, outcome{
		Kind: o.Kind, Name: o.Name, Site: o.Site, Action: o.Action, Generation: o.Generation,
		Accepted: api.Accepted{Operation: o.Operation, Changes: o.Changes}, Problem: o.Problem, client: ch.client,
	})
	if o.Problem != nil {
		ch.errs = append(ch.errs, s.refusal(o.PlanKey, *o.Problem))
	}
	if ch.cli.flags.output != formatTable {
		return
	}
	key := keyOf(o.PlanKey)
	if o.Problem != nil {
		fmt.Fprintf(ch.stdout, "%s refused: %s\n", key, clean(problem{Problem: *o.Problem}.kind()))
		return
	}
	text := first(pastOf[o.Action], o.Action)
	switch {
	case o.Operation != nil && o.Action == api.PlanDelete:
		text = "delete accepted"
	case o.Generation > 0:
		text += fmt.Sprintf(", generation %d", o.Generation)
	}
	switch {
	case o.Operation != nil:
		text += ", operation " + clean(o.Operation.ID)
	case key.Kind == fleet.KindInstance && o.Action != api.PlanDelete:
		text += ", nothing to deliver"
	}
	fmt.Fprintf(ch.stdout, "%s %s\n", key, text)
	ch.showChanges("  ", o.Changes)
}
