package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/certs"
)

// cli is one run of the command line.
type cli struct {
	process
	flags   globalFlags
	started bool // a command started: later errors are not about usage
	cancel  context.CancelFunc
	picture *progress      // what is currently drawn on the terminal
	kinds   []declaredKind // in the order of an apply
}

// globalFlags are flags of every command.
type globalFlags struct {
	output  format
	address string
	context string
	project string
	timeout time.Duration
	certs   certs.ClientFiles
}

const rootLong = `Holdfast puts configurations and services on machines at many sites and keeps them there.

The region comes from --context, else from HOLDFAST_ADDRESS and HOLDFAST_TOKEN, else from the current
context ("holdfast context set").`

func newRootCommand(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use: "holdfast", Short: "Declare what runs where, and keep it running", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, Args: noSubcommand, RunE: showHelp, SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.begin(cmd) },
	}
	root.SetFlagErrorFunc(flagError)
	c.flags.output = formatTable
	flags := root.PersistentFlags()
	flags.VarP(&c.flags.output, "output", "o", "output format: table, json, yaml or name")
	flags.StringVar(&c.flags.address, "address", "", "address of the region")
	flags.StringVar(&c.flags.context, "context", "", "saved context to use")
	flags.StringVar(&c.flags.project, "project", "", "project to list, declare, get or delete in (default of the region: default)")
	flags.DurationVar(&c.flags.timeout, "timeout", 0, "give up after this time, 0 for never")
	flags.StringVar(&c.flags.certs.CA, "ca", "", "trust this authority (PEM file) instead of the system's (default "+envCA+")")
	flags.StringVar(&c.flags.certs.Cert, "client-cert", "", "client certificate for calls (default "+envClientCert+")")
	flags.StringVar(&c.flags.certs.Key, "client-key", "", "its key (default "+envClientKey+")")
	complete(root, "output", fixed(formats...))
	complete(root, "context", c.completeContexts)
	complete(root, "project", c.completeObjects("project"))
	root.AddCommand(
		c.newPlanCommand(), c.newApplyCommand(), c.newGetCommand(), c.newDescribeCommand(), c.newDeleteCommand(),
		c.newExplainCommand(), c.newTopCommand(), c.newTryCommand(),
		c.newFleetCommand(),
		c.newExecCommand(), c.newReconcileCommand(), c.newOrphansCommand(), c.newDrainCommand(), c.newCordonCommand(), c.newUncordonCommand(), c.newWaitCommand(), c.newDeliveriesCommand(), c.newOperationsCommand(), c.newLogsCommand(),
		c.newEventsCommand(), c.newArtifactCommand(), c.newTokenCommand(), c.newJoinTokenCommand(), c.newRegionCommand(), c.newRolloutCommand(), c.newSyncCommand(),
		c.newContextCommand(), c.newVersionCommand(), newExitCodesTopic(),
		c.newServerCommand(), c.newNodeCommand(), c.newAdminCommand(), c.newDemoCommand(),
	)
	for _, v := range c.verbs() {
		root.AddCommand(c.newVerb(v))
	}
	return root
}

// begin marks that the command line was parsed, and starts the clock of --timeout.
func (c *cli) begin(cmd *cobra.Command) error {
	if err := cmd.ValidateRequiredFlags(); err != nil { // cobra itself checks later
		return err
	}
	if err := checkNumbers(cmd); err != nil {
		return err
	}
	if err := checkProject(cmd); err != nil {
		return err
	}
	c.started = true
	if c.flags.timeout <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.flags.timeout)
	c.cancel = cancel
	cmd.SetContext(ctx)
	return nil
}

// newGroup is a command that only has subcommands.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Args: noSubcommand, RunE: showHelp, SuggestionsMinimumDistance: 2}
	group.AddCommand(commands...)
	return group
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noSubcommand rejects an unknown subcommand, which cobra does only for the root.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	for _, s := range cmd.SuggestionsFor(args[0]) {
		text += fmt.Sprintf("; did you mean %q?", s)
	}
	return fmt.Errorf("%s; see %q", text, cmd.CommandPath()+" --help")
}
