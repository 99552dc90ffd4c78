package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const execLong = `Run a module of a provider with a JSON input, and write its answer to stdout.

With --durable the region retries across failures of servers and providers, until the module has
answered or --deadline has passed; -o json then prints the operation unless --wait is set. The input
is sent as it is; give it with --input, with -f, or with "-f -" from stdin.`

// execution are the flags of exec.
type execution struct {
	input, file   string
	durable, wait bool
	deadline      time.Duration
	flags         mutationFlags
}

func (c *cli) newExecCommand() *cobra.Command {
	var e execution
	cmd := &cobra.Command{
		Use: "exec PREFIX.NAME", Short: "Run a module of a provider", Long: execLong, Args: cobra.ExactArgs(1),
		Example:           "  holdfast exec acme.vision.Detect --input '{\"image\":\"a\"}'\n  holdfast exec acme.vision.Train -f job.json --durable --deadline 1h",
		ValidArgsFunction: c.completeModules,
	}
	cmd.Flags().StringVar(&e.input, "input", "", "the input, a JSON document (default {})")
	cmd.Flags().StringVarP(&e.file, "file", "f", "", "a file with the input, - for stdin")
	cmd.Flags().BoolVar(&e.durable, "durable", false, "let the region retry until it succeeds")
	cmd.Flags().BoolVar(&e.wait, "wait", true, "for a durable execution: wait for its answer")
	cmd.Flags().DurationVar(&e.deadline, "deadline", 0, "how long the module may take (default 30s, durable 10m)")
	e.flags.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := fleet.ParseModule("module", args[0]); err != nil {
			return &usageError{err}
		}
		input, err := e.read(cmd.InOrStdin())
		if err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		if e.durable || e.flags.dryRun {
			return c.execDurable(cmd.Context(), client, args[0], input, e)
		}
		output, err := client.Execute(cmd.Context(), args[0], input, e.deadline, e.flags.mutation())
		if err != nil {
			return err
		}
		return c.writeOutput(output)
	}
	return cmd
}

func (e execution) read(stdin io.Reader) ([]byte, error) {
	if e.input != "" && e.file != "" {
		return nil, &usageError{errors.New("give either --input or --file")}
	}
	input := []byte(e.input)
	var err error
	switch e.file {
	case "":
	case "-":
		input, err = io.ReadAll(io.LimitReader(stdin, fleet.MaxDirectInput+1))
	default:
		input, err = os.ReadFile(e.file)
	}
	switch {
	case err != nil:
		return nil, &usageError{fmt.Errorf("read the input: %w", err)}
	case len(input) > fleet.MaxDirectInput:
		return nil, &usageError{fleet.Errorf(fleet.TooLarge, "the input is too long; the limit is %d bytes", fleet.MaxDirectInput)}
	case len(bytes.TrimSpace(input)) == 0:
		return []byte("{}"), nil
	case !json.Valid(input):
		return nil, &usageError{errors.New("invalid input: want one JSON document")}
	}
	return input, nil
}

// execDurable starts a durable execution, and writes its answer if it waits for it.
func (c *cli) execDurable(ctx context.Context, client *api.Client, module string, input []byte, e execution) error {
	start := client.ExecuteDurable
	if !e.durable { // a dry run of a direct one
		start = func(ctx context.Context, module string, input []byte, timeout time.Duration, m api.Mutation) (api.Accepted, error) {
			_, err := client.Execute(ctx, module, input, timeout, m)
			return api.Accepted{DryRun: true}, err
		}
	}
	accepted, err := start(ctx, module, input, e.deadline, e.flags.mutation())
	if err != nil {
		return err
	}
	if accepted.Operation == nil || accepted.DryRun {
		fmt.Fprintf(c.stderr, "%s would take this input (dry run, nothing was changed)\n", module)
		return nil
	}
	if !e.wait {
		return c.print(single(operationHeader, c.operationItem(*accepted.Operation)))
	}
	end, err := c.await(ctx, client, *accepted.Operation)
	if err != nil {
		return err
	}
	output, err := client.ExecutionOutput(ctx, end.ID)
	if err != nil {
		return err
	}
	return c.writeOutput(output)
}

// writeOutput writes an answer unchanged, or in the requested format.
func (c *cli) writeOutput(output []byte) error {
	if c.flags.output == formatYAML {
		return writeYAML(c.stdout, json.RawMessage(output))
	}
	if c.flags.output == formatJSON {
		return writeJSON(c.stdout, json.RawMessage(output))
	}
	fmt.Fprintln(c.programs(false), string(output))
	return nil
}

func (c *cli) completeModules(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return c.namesOf(cmd.Context(), "module", listing{}, prefix), noFiles
}
