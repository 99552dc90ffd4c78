package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// verb is a command that requests one operation on each object that it names, and waits for them.
type verb struct {
	word                      string // of the region: POST …/NAME/WORD
	use, short, long, example string
	args                      cobra.PositionalArgs // nil for one or more
	complete                  completer
	keys                      func(args []string) ([]fleet.ObjectKey, error) // parses all names before any request
	// flags adds its flags, and gives what makes the body once they are read; nil for no body.
	flags func(cmd *cobra.Command, f *mutationFlags) func(names int) (any, error)
	// about completes the body for one object, nil for none.
	about func(ctx context.Context, client *api.Client, key fleet.ObjectKey, in any) (any, error)
}

// verbs has a row for each verb that is a top-level command; drain, reconcile and fleet group theirs.
func (c *cli) verbs() []verb {
	return []verb{
		c.deployVerb(), c.instanceVerb("enable", "Start instances"), c.instanceVerb("disable", "Stop instances; their nodes keep the config"),
		c.rollbackVerb(), c.scaleVerb(), c.restartVerb(), c.failoverVerb(),
	}
}

func (c *cli) newVerb(v verb) *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: v.args, ValidArgsFunction: v.complete,
	}
	if cmd.Args == nil {
		cmd.Args = cobra.MinimumNArgs(1)
	}
	f.addWait(cmd)
	body := v.flags(cmd, &f)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var in any
		if body != nil {
			if in, err = body(len(args)); err != nil {
				return err
			}
		}
		keys, err := v.keys(args)
		if err != nil {
			return err
		}
		targets := make([]target, len(keys))
		for i, key := range keys {
			targets[i] = target{key: key, do: func(ctx context.Context, client *api.Client, m api.Mutation) (api.Accepted, error) {
				return v.ask(ctx, client, key, in, m)
			}}
		}
		return c.change(cmd.Context(), v.word+" accepted", &f, targets)
	}
	return cmd
}

func (v verb) ask(ctx context.Context, client *api.Client, key fleet.ObjectKey, in any, m api.Mutation) (_ api.Accepted, err error) {
	if v.about != nil {
		if in, err = v.about(ctx, client, key, in); err != nil {
			return api.Accepted{}, err
		}
	}
	return client.Ask(ctx, key, v.word, in, m)
}

// each parses the arguments one by one.
func each(named func(arg string) (fleet.ObjectKey, error)) func([]string) ([]fleet.ObjectKey, error) {
	return func(args []string) ([]fleet.ObjectKey, error) {
		keys := make([]fleet.ObjectKey, len(args))
		for i, arg := range args {
			var err error
			if keys[i], err = named(arg); err != nil {
				return nil, err
			}
		}
		return keys, nil
	}
}

// reasoned is the body of a verb that takes a reason only.
func (f *mutationFlags) reasoned(int) (any, error) { return api.ActionRequest{Reason: f.reason}, nil }
