package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const planLong = `Show what an apply of manifest files would create, change and delete, without changing anything.

For an instance that changes it shows how its final config differs from what each node holds now;
marked secrets are redacted. The exit code is 0 if nothing would change, 3 if something would, and
another one if an object is rejected.

--out saves the plan in a file, and "holdfast apply --plan FILE" applies exactly that plan: if an
object was written since, nothing is applied. The file contains the manifests with everything that
they refer to, including secrets. An artifact file must still exist when the plan is applied.

Objects of one --apply-set carry the label ` + api.ApplySetLabel + `. With --prune, objects of the
set that are not in the files are deleted; without it, they are only listed. Objects of another set
or of none are never touched.`

// manySettings are flags of requests with many objects.
type manySettings struct {
	files  []string
	set    string
	prune  bool
	deploy bool
}

func (m *manySettings) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&m.files, "filename", "f", nil, "file, directory or - for stdin; may be repeated")
	cmd.Flags().BoolVar(&m.deploy, "deploy", true, "deliver the instances; --deploy=false only declares them")
	cmd.Flags().StringVar(&m.set, "apply-set", "", "label the objects as one set")
	cmd.Flags().BoolVar(&m.prune, "prune", false, "delete objects of the set that are not in the files")
}

func (m *manySettings) check() error {
	if m.prune && m.set == "" {
		return &usageError{errors.New("--prune needs --apply-set, which selects the objects that may be deleted")}
	}
	return nil
}

func (m *manySettings) release() api.Release {
	if m.deploy {
		return api.ReleaseAll
	}
	return api.ReleaseNone
}

func (c *cli) newPlanCommand() *cobra.Command {
	var m manySettings
	var out, reason string
	cmd := &cobra.Command{
		Use: "plan -f FILE|DIR|-", Short: "Show what an apply would do", Long: planLong, Args: cobra.NoArgs,
		Example: "  holdfast plan -f plant-1/ --apply-set plant-1 --prune --out plant-1.plan\n  holdfast apply --plan plant-1.plan",
	}
	m.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "save the plan in this file, for apply --plan")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, stored in the delivery history when the plan is applied")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := m.check(); err != nil {
			return err
		}
		s, err := c.request(&m, usePlanned, reason)
		if err != nil {
			return err
		}
		return c.plan(cmd.Context(), s, out)
	}
	return cmd
}

// plan requests a plan, shows it, and saves it if requested.
func (c *cli) plan(ctx context.Context, s *savedPlan, out string) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	p, err := client.Plan(ctx, s.Request, s.Release)
	if err != nil {
		return err
	}
	if err := c.showPlan(p); err != nil {
		return err
	}
	if err := c.reportAll(s.refusals(p)); err != nil {
		return err
	}
	if out != "" {
		s.Plan = p.Binding()
		if err := s.save(out); err != nil {
			return err
		}
	}
	if p.Changes {
		return &reported{exitChanges}
	}
	return nil
}

// refusals are the errors of a plan, each with its manifest.
func (s *savedPlan) refusals(p api.Plan) []error {
	var errs []error
	for _, o := range p.Objects {
		if o.Problem != nil {
			errs = append(errs, s.refusal(o.PlanKey, *o.Problem))
		}
	}
	return errs
}

func (s *savedPlan) refusal(k api.PlanKey, p api.Problem) error {
	k.Region = "" // no file names it
	return locate(api.ErrorOf(p), target{key: keyOf(k), at: s.at[k]})
}

func keyOf(k api.PlanKey) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: fleet.ObjectKind(k.Kind), Scope: k.Site, Name: k.Name}
}

// summaryText is the last line of a plan.
func summaryText(s api.PlanSummary) string {
	text := fmt.Sprintf("%d to create, %d to change, %d to delete, %d unchanged", s.Create, s.Change, s.Delete, s.Unchanged)
	if s.Refused > 0 {
		text += fmt.Sprintf(", %d refused", s.Refused)
	}
	return text
}
