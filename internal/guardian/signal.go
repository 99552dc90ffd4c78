package guardian

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Signal sends a signal to the running command (SIGHUP when sig is "") and stores its labels from now on. While
// a crashed command waits for its restart, there is nothing to signal, and only the labels are stored: it will
// read the new config.
func (r *Runtime) Signal(ctx context.Context, name fleet.InstanceName, sig string, labels Labels) error {
	dir, err := r.dir(name)
	if err != nil {
		return err
	}
	if sig == "" {
		sig = "SIGHUP"
	}
	if !slices.Contains(fleet.RunSignals(), sig) {
		return fleet.Errorf(fleet.Invalid, "unknown signal; use one of %s", strings.Join(fleet.RunSignals(), ", ")).At("/signal")
	}
	ctx, cancel := context.WithTimeout(ctx, r.answerTimeout())
	defer cancel()
	answer, err := ask(ctx, dir, request{Op: opSignal, Signal: sig, Labels: labels})
	if err == nil {
		if err := answer.err(); err != nil {
			return fmt.Errorf("signal %s: %w", name, err)
		}
		return nil
	}
	if held, lockErr := lockHeld(dir); lockErr == nil && !held {
		return fleet.Errorf(fleet.NotFound, "signal %s: no guardian of the instance is running", name)
	}
	return fleet.Errorf(fleet.Unavailable, "signal %s: %w", name, err)
}
