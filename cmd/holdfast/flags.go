package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// flagWants describes the values of each flag type; none accepts less than 0.
var flagWants = map[string]string{
	"bool": "true or false", "int": "a whole number, 0 or more", "int64": "a whole number, 0 or more",
	"float64": "a number, 0 or more", "duration": "a duration, for example 90s, 5m or 2h",
}

// flagError explains which values an unreadable flag accepts (X19).
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
	}
	if want, known := flagWants[wrong.GetFlag().Value.Type()]; known {
		return fmt.Errorf("invalid --%s %.40q: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
	}
	return fmt.Errorf("invalid --%s %.40q: %w", wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
}

// checkNumbers rejects values below 0, unless they are the default.
func checkNumbers(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		want, known := flagWants[f.Value.Type()]
		if known && strings.HasPrefix(f.Value.String(), "-") && f.Value.String() != f.DefValue {
			err = errors.Join(err, fmt.Errorf("invalid --%s %.40q: want %s", f.Name, f.Value, want))
		}
	})
	return err
}

// aSecondAtLeast rejects what would be truncated to 0 where seconds are sent.
func aSecondAtLeast(flag string, d time.Duration) error {
	if d < time.Second {
		return &usageError{fleet.Errorf(fleet.Invalid, "invalid --%s %q: want at least 1s", flag, d)}
	}
	return nil
}

// inProject are the commands that --project means something to.
var inProject = []string{
	"plan", "apply", "get", "describe", "delete", "try", "events", "operations list", "artifact upload", "token create", "context set",
}

// checkProject refuses --project where it would be ignored.
func checkProject(cmd *cobra.Command) error {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if !cmd.Flags().Changed("project") || slices.Contains(inProject, path) {
		return nil
	}
	return fmt.Errorf("%q does not use --project: a name means one object of the region, whatever its project; leave it out", cmd.CommandPath())
}
