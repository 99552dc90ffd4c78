package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	defaultData  = ".holdfast"
	maxSites     = 20 // a laptop with 40 node processes is slow enough
	defaultSites = 2

	heartbeatFlag = "link-heartbeat-timeout" // as at a server and at a node
	minHeartbeat  = time.Second
	maxHeartbeat  = time.Hour
)

// options are the flags of a region on a laptop.
type options struct {
	once, empty        bool
	tls, noIsolation   bool
	pace               pace
	data, definitions  string
	api, temporal, web string
	sites, regions     int
	network            network
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("temporal-dev", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.once, "once", false, "end after the deliveries, with an exit code")
	flags.BoolVar(&o.empty, "empty", false, "deliver nothing")
	flags.BoolVar(&o.pace.Fast, "fast", false, "1 s heartbeats, 3 s timeouts, 5 s sweeps")
	flags.DurationVar(&o.pace.HeartbeatTimeout, heartbeatFlag, 0, "after which silence a node counts as gone, and a lease as lost (0 is 15s, and 3s with --fast; heartbeats come three times as often): longer is for a busy machine")
	flags.BoolVar(&o.tls, "tls", false, "speak TLS, with certificates on both sides that are made in the data directory")
	flags.Func("isolation", "as at a node: uid (if this is root) or none (default uid)", o.isolate)
	flags.StringVar(&o.data, "data", defaultData, "where everything is kept")
	flags.StringVar(&o.definitions, "definitions", "", "directory of settings (vllm.json, …) over those that types of deployments have")
	flags.StringVar(&o.api, "api", "127.0.0.1:7460", "address of the API; port 0 picks a free one")
	flags.StringVar(&o.temporal, "temporal", "127.0.0.1:7233", "address of Temporal")
	flags.StringVar(&o.web, "web", "127.0.0.1:8233", "address of Temporal Web")
	flags.IntVar(&o.sites, "sites", defaultSites, "how many sites of two nodes")
	flags.IntVar(&o.regions, "regions", 1, "how many regions (only 1 so far)")
	if err := flags.Parse(args); err != nil {
		return o, asUsage(err)
	}
	if err := o.check(flags.Args()); err != nil {
		return o, usageError{err}
	}
	data, err := filepath.Abs(o.data)
	if err != nil {
		return o, fmt.Errorf("resolve --data: %w", err)
	}
	o.data = data
	if o.definitions != "" {
		if o.definitions, err = filepath.Abs(o.definitions); err != nil {
			return o, fmt.Errorf("resolve --definitions: %w", err)
		}
	}
	return o, nil
}

func (o *options) isolate(text string) error {
	switch fleet.Separation(text) {
	case fleet.SeparationUID, fleet.SeparationNone:
		o.noIsolation = fleet.Separation(text) == fleet.SeparationNone
		return nil
	}
	return fmt.Errorf("unknown isolation %.20q; use uid or none", text)
}

func (o options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %.40q", rest[0])
	case o.data == "":
		return errors.New("--data: a directory is needed")
	case o.sites < 1 || o.sites > maxSites:
		return fmt.Errorf("--sites %d: allowed are 1 to %d", o.sites, maxSites)
	case o.regions != 1:
		return fmt.Errorf("--regions %d: allowed is 1", o.regions)
	case o.pace.HeartbeatTimeout != 0 && (o.pace.HeartbeatTimeout < minHeartbeat || o.pace.HeartbeatTimeout > maxHeartbeat):
		return fmt.Errorf("--%s %v: allowed are %v to %v", heartbeatFlag, o.pace.HeartbeatTimeout, minHeartbeat, maxHeartbeat)
	}
	return nil
}

// asUsage leaves a request for help as it is: the flag package has already answered it.
func asUsage(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return usageError{err}
}
