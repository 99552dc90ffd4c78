package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// mutationFlags are flags of every command that changes something.
type mutationFlags struct {
	ifMatch, key, reason string
	region               string // that created the objects
	dryRun, wait         bool
	// wanted is another end besides success that does not count as a failure.
	wanted fleet.OperationState
}

func (f *mutationFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ifMatch, "if-match", "", "proceed only if the object still has this ETag or resource version")
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "key that makes a repeated request the same change (default random)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would happen and change nothing")
}

func (f *mutationFlags) addWait(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until the operation ends")
}

func (f *mutationFlags) addReason(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, stored in the delivery history")
}

func (c *cli) addRegion(cmd *cobra.Command, f *mutationFlags) {
	cmd.Flags().StringVar(&f.region, "region", "", "region that created the object (default this region, or that of the only copy)")
	complete(cmd, "region", c.completeObjects("region"))
}

func (f *mutationFlags) mutation() api.Mutation {
	return api.Mutation{IfMatch: api.Quoted(f.ifMatch), IdempotencyKey: f.key, DryRun: f.dryRun, Region: f.region}
}

// target is an object to change, and the change.
type target struct {
	key    fleet.ObjectKey
	region string // that created it, "" for that of the flags
	at     string // where it was declared, "" if on the command line
	do     func(context.Context, *api.Client, api.Mutation) (api.Accepted, error)
}

// outcome is the result for one target, in the shape of json and yaml output.
type outcome struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Site string `json:"site,omitempty"`
	// For an apply of many objects as one request.
	Action     string `json:"action,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Context is where the change was made, if another region owns the object.
	Context string `json:"context,omitempty"`
	api.Accepted
	Problem *api.Problem `json:"problem,omitempty"`

	client *api.Client
}

// changer makes changes one after the other, then waits for the operations they started.
type changer struct {
	*cli
	client   *api.Client
	verb     string // for output: applied, deploy accepted
	flags    *mutationFlags
	places   map[string]*place // the user's contexts of other regions, by region
	outcomes []outcome
	errs     []error
}

// change runs every command that changes objects.
func (c *cli) change(ctx context.Context, verb string, f *mutationFlags, targets []target) error {
	if len(targets) > 1 && (f.ifMatch != "" || f.key != "") {
		return &usageError{errors.New("--if-match and --idempotency-key need exactly one object")}
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	ch := &changer{cli: c, client: client, verb: verb, flags: f}
	for i, t := range targets {
		if err := ch.start(ctx, t); hopeless(ctx, err) && i < len(targets)-1 {
			ch.errs = append(ch.errs, fleet.Errorf(fleet.KindOf(err), "skipped the %d objects after %s", len(targets)-1-i, t.key))
			break
		}
	}
	if f.wait {
		ch.finish(ctx)
	}
	return ch.report()
}

// start makes one change. In table format it prints the result at once, not after the last change.
func (ch *changer) start(ctx context.Context, t target) error {
	at, m := place{client: ch.client}, ch.flags.mutation()
	m.Region = first(t.region, m.Region)
	accepted, err := t.do(ctx, at.client, m)
	to, err := ch.elsewhere(ctx, t.key, &m, err)
	if to != nil {
		at = *to
		accepted, err = t.do(ctx, at.client, m)
	}
	o := outcome{Kind: string(t.key.Kind), Name: t.key.Name, Site: t.key.Scope, Context: at.context, Accepted: accepted, client: at.client}
	if err != nil {
		err = locate(err, t)
		p := problemOf(err).Problem
		o.Problem = &p
		ch.errs = append(ch.errs, err)
	}
	ch.outcomes = append(ch.outcomes, o)
	switch {
	case ch.cli.flags.output != formatTable:
	case err != nil:
		fmt.Fprintf(ch.stdout, "%s refused: %s\n", t.key, clean(problemOf(err).kind()))
	default:
		fmt.Fprintf(ch.stdout, "%s %s%s\n", t.key, ch.verb, acceptedText(ch.verb, accepted))
		ch.showChanges("  ", accepted.Changes)
	}
	return err
}

// acceptedText describes the effect of a change, or of a verb.
func acceptedText(verb string, a api.Accepted) string {
	text := ""
	if a.Object != nil {
		text += fmt.Sprintf(", generation %d", a.Object.Generation)
	}
	switch {
	case a.DryRun && a.Operation != nil:
		text += ", would " + wouldText(*a.Operation) + " (dry run, nothing was changed)"
	case a.DryRun:
		text += " (dry run, nothing was changed)"
	case a.Operation != nil:
		text += ", operation " + clean(a.Operation.ID)
	case a.Object != nil && a.Object.Kind == string(fleet.KindInstance):
		text += ", nothing to deliver"
	case a.Object != nil && a.Object.Kind == string(fleet.KindDeployment) && !strings.HasSuffix(verb, " accepted"):
		text += ", nothing to do"
		if len(a.Changes) > 0 { // it was rolled back, or is not to be released
			text += "; but it differs from what runs, see \"holdfast explain deployment " + clean(a.Object.Name) + "\""
		}
	}
	return text
}

// wouldText describes what an operation would do.
func wouldText(op api.Operation) string {
	if op.Fleet != "" {
		return "continue in waves"
	}
	return clean(op.Kind)
}

// finish waits for each operation; they run concurrently, in whatever order they are checked.
func (ch *changer) finish(ctx context.Context) {
	for i := range ch.outcomes {
		o := &ch.outcomes[i]
		if o.Operation == nil || o.DryRun {
			continue
		}
		end, err := ch.await(ctx, o.client, *o.Operation)
		o.Operation = &end
		if err != nil && end.State != ch.flags.wanted {
			ch.errs = append(ch.errs, err)
		}
	}
}

func (ch *changer) report() error {
	v := view{single: len(ch.outcomes) == 1}
	for _, o := range ch.outcomes {
		key := fleet.ObjectKey{Kind: fleet.ObjectKind(o.Kind), Scope: o.Site, Name: o.Name}
		if ch.cli.flags.output == formatName && o.Problem != nil {
			continue // a name on stdout means success
		}
		v.items = append(v.items, item{name: key.String(), value: o})
	}
	if ch.cli.flags.output != formatTable {
		if err := ch.print(v); err != nil {
			return err
		}
	}
	return ch.reportAll(ch.errs)
}

// hopeless reports whether the next object would fail in the same way.
func hopeless(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	code := exitCodeOf(err)
	return ctx.Err() != nil || code == exitUnreachable || fleet.KindOf(err) == fleet.Unauthenticated
}

// locate adds the object and its manifest to an error of the region.
func locate(err error, t target) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", t.key, err)
	}
	named := *e
	named.Message = t.key.String() + ": " + e.Message
	if t.at != "" {
		named.Message = t.at + ": " + named.Message
	}
	return &named
}
