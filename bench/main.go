// Command bench measures a region on this machine: each figure in turn with its yardstick, in
// five rounds of one run, since absolute times say little about another machine. The table of
// docs/benchmarks.md is its output. It runs on Linux, in the root of the repository:
//
//	go run ./bench [-only NAME,…] [-n 60] [-objects 100000] [-write] [-strict]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// measurement is one group of figures that share a region.
type measurement struct {
	name string
	run  func(ctx context.Context, l *lab) ([]figure, error)
}

// measurements are in the order in which they run: idle first, while nothing has run yet.
func measurements() []measurement {
	return []measurement{
		{"idle", measureIdle},
		{"nodes", measureNodes},
		{"latency", measureLatency},
		{"throughput", measureThroughput},
		{"artifact", measureArtifact},
		{"memory", measureMemory},
		{"plan", measurePlan},
		{"reconcile", measureReconcile},
		{"fleet", measureFleet},
		{"execute", measureExecute},
		{"connections", measureConnections},
		{"strangers", measureStrangers},
		{"placement", measurePlacement},
		{"deployments", measureDeployments},
		{"fetch", measureFetch},
		{"rolling", measureRolling},
		{"changes", measureChanges},
		{"sync", measureSync},
		{"isolation", measureIsolation},
		{"regions", measureRegions},
		{"comparison", measureComparison},
	}
}

const (
	exitOK = iota
	exitFailed
	exitUsage
)

// options are the flags.
type options struct {
	only          []string
	n, objects    int
	write, strict bool
	keep          bool
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == providersMode {
		if err := runProviders(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: providers:", err)
			os.Exit(exitFailed)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == strangersMode {
		if err := runStrangers(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: strangers:", err)
			os.Exit(exitFailed)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitUsage)
	}
	code, err := bench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(code)
}

func parse(args []string) (options, error) {
	var o options
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "measure these alone, of "+strings.Join(names, ","))
	flags.IntVar(&o.n, "n", 60, "how many deliveries, and how many bare workflows, make a round")
	flags.IntVar(&o.objects, "objects", 100_000, "how many objects regions share, and a policy governs")
	flags.BoolVar(&o.write, "write", false, "write "+reportFile)
	flags.BoolVar(&o.strict, "strict", false, "exit with 1 when a limit is missed")
	flags.BoolVar(&o.keep, "keep", false, "keep the regions' data and logs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.only = names
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("-only %.40q: there are %s", name, strings.Join(names, ", "))
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %.40q", flags.Arg(0))
	case o.n < 1:
		return o, fmt.Errorf("-n %d: at least 1", o.n)
	case o.objects < leastObjects:
		return o, fmt.Errorf("-objects %d: at least %d", o.objects, leastObjects)
	}
	return o, nil
}

// bench measures, prints as it goes, and gives the exit code.
func bench(ctx context.Context, o options) (int, error) {
	l, err := newLab(ctx, o)
	if err != nil {
		return exitFailed, err
	}
	defer l.close()
	began := time.Now()
	var all []figure
	for _, m := range measurements() {
		if !slices.Contains(o.only, m.name) {
			continue
		}
		l.say("%s …", m.name)
		w := l.watch()
		figures, err := m.run(ctx, l)
		if err == nil {
			err = w.stamp(figures)
		}
		if err != nil {
			return exitFailed, fmt.Errorf("measure %s: %w", m.name, err)
		}
		all = append(all, figures...)
	}
	r := report{machine: thisMachine(), at: began, took: time.Since(began), n: o.n, figures: all}
	fmt.Print(r.summary())
	if o.write {
		if err := r.write(); err != nil {
			return exitFailed, err
		}
	}
	if missed := r.missed(); o.strict && len(missed) > 0 {
		return exitFailed, fmt.Errorf("limits missed: %s", strings.Join(missed, ", "))
	}
	return exitOK, nil
}
