package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
)

// networkVariable names a file in which tests place nodes on a network; only tests use it.
const networkVariable = "HOLDFAST_NETWORK"

// network is the network location of the region and its nodes; the zero value is this machine's loopback.
type network struct {
	Region string           `json:"region"` // the IP at which nodes reach it
	Nodes  map[string]place `json:"nodes"`
	Name   string           `json:"name"`  // of the region, if it is one of several
	Peers  string           `json:"peers"` // host:port where other regions call it
}

// place is a node's location. Empty fields are as for a node on the loopback.
type place struct {
	Enter []string `json:"enter"` // runs the command that follows it there
	Peer  string   `json:"peer"`  // host:port for its votes
	API   string   `json:"api"`   // the region as this node reaches it
	Link  string   `json:"link"`
}

// onNetwork places a region where its test wants it.
func onNetwork(o options) (options, error) {
	path := os.Getenv(networkVariable)
	if path == "" {
		return o, nil
	}
	if err := readJSON(path, &o.network); err != nil {
		return o, fmt.Errorf("read the network of %s: %w", networkVariable, err)
	}
	if o.network.Region != "" {
		o.api = o.network.inner()
	}
	return o, nil
}

// inner is where the region listens for its nodes.
func (n network) inner() string {
	if n.Region == "" {
		return net.JoinHostPort(loopback, "0")
	}
	return net.JoinHostPort(n.Region, "0")
}

// move puts a node's addresses into its configuration.
func (p place) move(in nodeInput) nodeInput {
	for mine, its := range map[*string]string{&in.Peer: p.Peer, &in.API: p.API, &in.Link: p.Link} {
		if its != "" {
			*mine = its
		}
	}
	return in
}

// within runs a child at its node's location.
func (p place) within(s spec) spec {
	if len(p.Enter) == 0 {
		return s
	}
	command := s.command
	s.command = func(ctx context.Context) (*exec.Cmd, error) {
		cmd, err := command(ctx)
		if err != nil {
			return nil, err
		}
		there := exec.Command(p.Enter[0], append(p.Enter[1:], cmd.Args...)...)
		there.Stdin = cmd.Stdin
		return there, nil
	}
	return s
}
