package main

import (
	"cmp"
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
	region             string // the name of one of several regions, else ""
	firstNode          int    // how many nodes the regions before it have
	network            network
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("temporal-dev", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.once, "once", false, "end after the deliveries, with an exit code")
	flags.BoolVar(&o.empty, "empty", false, "deliver nothing")
	flags.BoolVar(&o.pace.Fast, "fast", false, "1 s heartbeats, 3 s timeouts, 5 s sweeps")
	flags.DurationVar(&o.pace.HeartbeatTimeout, heartbeatFlag, 0, "silence after which a node counts as gone and a lease as lost (0 means 15s, or 3s with --fast; heartbeats are three times as frequent); use more on a busy machine")
	flags.BoolVar(&o.tls, "tls", false, "use TLS, with certificates on both sides, created in the data directory")
	flags.Func("isolation", "as at a node: uid (if this is root) or none (default uid)", o.isolate)
	flags.StringVar(&o.data, "data", defaultData, "directory for all data")
	flags.StringVar(&o.definitions, "definitions", "", "directory of settings (vllm.json, …) that override those of deployment types")
	flags.StringVar(&o.api, "api", "127.0.0.1:7460", "address of the API; port 0 picks a free one")
	flags.StringVar(&o.temporal, "temporal", "127.0.0.1:7233", "address of Temporal")
	flags.StringVar(&o.web, "web", "127.0.0.1:8233", "address of Temporal Web")
	flags.IntVar(&o.sites, "sites", defaultSites, "number of sites, with two nodes each")
	flags.IntVar(&o.regions, "regions", 1, "number of regions, 1 to 3; several know each other, and each is complete")
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
		return errors.New("--data is required: give a directory")
	case o.sites < 1 || o.sites > maxSites:
		return fmt.Errorf("invalid --sites %d: want 1 to %d", o.sites, maxSites)
	case o.regions < 1 || o.regions > len(regionNames):
		return fmt.Errorf("invalid --regions %d: want 1 to %d", o.regions, len(regionNames))
	case o.pace.HeartbeatTimeout != 0 && (o.pace.HeartbeatTimeout < minHeartbeat || o.pace.HeartbeatTimeout > maxHeartbeat):
		return fmt.Errorf("invalid --%s %v: want %v to %v", heartbeatFlag, o.pace.HeartbeatTimeout, minHeartbeat, maxHeartbeat)
	}
	return nil
}

// regionName is the region's name.
func (o options) regionName() string { return cmp.Or(o.region, o.network.Name, regionName) }

// process names a process of a region: eu/server where there are several regions.
func (o options) process(name string) string {
	if o.region == "" {
		return name
	}
	return o.region + "/" + name
}

// control is the directory by which the processes are steered: with several regions, that above the region's own.
func (o options) control() string {
	if o.region == "" {
		return o.data
	}
	return filepath.Dir(o.data)
}

// asUsage leaves a request for help as it is, because the flag package has already answered it.
func asUsage(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return usageError{err}
}
