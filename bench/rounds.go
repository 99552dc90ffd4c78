package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// rounds is how often a figure is measured, in turn with its yardstick.
const rounds = 5

// turn measures one side of a round.
type turn func(ctx context.Context, round int) (float64, error)

// series has a value of each round: of the figure, and of its yardstick where it has one.
type series struct{ ours, plain []float64 }

// inTurn measures a figure and its yardstick as A B, B A, A B, …: what drifts meanwhile, a
// neighbour's load or the size of a store, then counts for both.
func (l *lab) inTurn(ctx context.Context, ours, plain turn) (series, error) {
	var s series
	for round := range rounds {
		order := []func() error{
			func() error { return measured(ctx, round, ours, &s.ours) },
			func() error { return measured(ctx, round, plain, &s.plain) },
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, one := range order {
			if err := one(); err != nil {
				return s, err
			}
		}
		l.say("  round %d: %.4g against %.4g", round+1, s.ours[round], s.plain[round])
	}
	return s, nil
}

func measured(ctx context.Context, round int, one turn, into *[]float64) error {
	v, err := one(ctx, round)
	*into = append(*into, v)
	return err
}

// call is one of many that are timed.
type call func(ctx context.Context) (time.Duration, error)

// typical is the median of n calls, in ms, one after the other. All their times are kept.
func typical(n int, all *[]time.Duration, one call) turn { return within(0.5, n, all, one) }

// within is the time within which the part q of n calls end.
func within(q float64, n int, all *[]time.Duration, one call) turn {
	return func(ctx context.Context, _ int) (float64, error) {
		times := make([]time.Duration, n)
		for i := range times {
			var err error
			if times[i], err = one(ctx); err != nil {
				return 0, err
			}
		}
		*all = append(*all, times...)
		return inMillis(quantile(times, q)), nil
	}
}

// timed is a call that is timed whole.
func timed(do func(ctx context.Context) error) call {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := do(ctx)
		return time.Since(began), err
	}
}

// ratios are those of the rounds, each of its own pair.
func (s series) ratios() []float64 {
	return s.each(func(ours, plain float64) float64 { return ours / plain })
}

func (s series) differences() []float64 {
	return s.each(func(ours, plain float64) float64 { return ours - plain })
}

func (s series) each(f func(ours, plain float64) float64) (out []float64) {
	for i := range s.plain {
		out = append(out, f(s.ours[i], s.plain[i]))
	}
	return out
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile of times; q is below 1.
func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[int(q*float64(len(sorted)))]
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", inMillis(d)) }

// The yardstick of what no simpler program does: a loop of work that never changes, on one
// core, a JSON document of 64 KB parsed and written again.
const (
	loops    = 1000 // timed together
	loopText = 64
)

// loop gives the time that passed for all loops, and the time of the processor in it.
func loop() (passed, processor time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	document := fixedConfig(configSize, loopText)
	began := time.Now()
	before, err := threadTime()
	if err != nil {
		return 0, 0, err
	}
	for range loops {
		var v any
		if err := json.Unmarshal(document, &v); err != nil {
			return 0, 0, err
		}
		if _, err := json.Marshal(v); err != nil {
			return 0, 0, err
		}
	}
	after, err := threadTime()
	return time.Since(began), after - before, err
}

func threadTime() (time.Duration, error) { return usedTime(unix.RUSAGE_THREAD) }

func usedTime(who int) (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0, fmt.Errorf("read the time that was used: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// loopSeconds is how long all loops take.
func loopSeconds(context.Context, int) (float64, error) {
	passed, _, err := loop()
	return passed.Seconds(), err
}

// loopPercent is what one loop a second would use of a core.
func loopPercent(context.Context, int) (float64, error) {
	_, processor, err := loop()
	return 100 * processor.Seconds() / loops, err
}

// loopRate is how many loops a core does in a second of its time.
func loopRate(context.Context, int) (float64, error) {
	_, processor, err := loop()
	return loops / processor.Seconds(), err
}
