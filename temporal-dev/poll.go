package main

import (
	"context"
	"fmt"
	"time"
)

const pollInterval = 25 * time.Millisecond

// poll calls done until it is true or the patience is over.
func poll(ctx context.Context, patience time.Duration, done func() bool) error {
	return pollErr(ctx, patience, func(context.Context) error {
		if done() {
			return nil
		}
		return errNotYet
	})
}

type notYet struct{}

func (notYet) Error() string { return "not yet" }

var errNotYet error = notYet{}

// pollErr tries until there is no error. Its own error includes the last one.
func pollErr(ctx context.Context, patience time.Duration, try func(context.Context) error) error {
	return pollEvery(ctx, pollInterval, patience, try)
}

// pollEvery is pollErr for what costs too much to try at each pollInterval.
func pollEvery(ctx context.Context, interval, patience time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for last := error(nil); ; {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last != nil && ctx.Err() != nil { // the last attempt was cut off: the one before says why
			err = last
		}
		last = err
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w after %v: %w", ctx.Err(), patience, err)
		}
	}
}
