package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
)

// startNodes declares the sites, starts their nodes and waits until the region reports them ready.
func (l *laptop) startNodes(ctx context.Context, sites []fleet.SiteName) error {
	var nodes []fleet.NodeName
	began := time.Now()
	for _, site := range sites {
		if err := l.api.declareSite(ctx, site); err != nil {
			return err
		}
		for _, n := range laptopSite(site).Nodes {
			if err := l.startNode(ctx, site, n.Name, uidsOf(l.opts.firstNode+len(nodes))); err != nil {
				return err
			}
			nodes = append(nodes, n.Name)
		}
	}
	if err := l.api.nodesReady(ctx, func() []fleet.NodeName { return l.wanted(nodes) }); err != nil {
		return fmt.Errorf("wait for the nodes (logs in %s): %w", l.dir.file("logs"), err)
	}
	l.say("%d nodes of %d sites ready in %s", len(l.wanted(nodes)), len(sites), seconds(time.Since(began)))
	return nil
}

// wanted leaves out those that were stopped by hand.
func (l *laptop) wanted(nodes []fleet.NodeName) []fleet.NodeName {
	views := l.supervisor.views()
	return slices.DeleteFunc(slices.Clone(nodes), func(n fleet.NodeName) bool {
		return slices.ContainsFunc(views, func(v processView) bool { return v.Name == string(n) && !v.Wanted })
	})
}

// uidsPerNode is how many projects may have commands on a node.
const uidsPerNode = 1024

// uidsOf gives the nodes of one machine separate ranges, so that projects on different nodes never share a user.
func uidsOf(node int) isolation.Range {
	first := isolation.DefaultRange().First + node*uidsPerNode
	return isolation.Range{First: first, Last: first + uidsPerNode - 1}
}

func (l *laptop) startNode(ctx context.Context, site fleet.SiteName, node fleet.NodeName, uids isolation.Range) error {
	data := l.dir.file("nodes", string(node))
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("make the directory of %s: %w", node, err)
	}
	own, err := l.authority.pair(string(node))
	if err != nil {
		return err
	}
	at := l.opts.network.Nodes[string(node)]
	input := func(ctx context.Context) (any, error) {
		join, err := l.api.joinToken(ctx, l.dir, site, node)
		if err != nil {
			return nil, err
		}
		return at.move(nodeInput{
			Node: string(node), Site: string(site), API: l.apiURL(), Link: l.addrs.dial(addrLink), Peer: l.addrs.dial(addrPeer(node)),
			Data: data, Join: join, Program: l.self, Supervisor: os.Getpid(), Pace: l.opts.pace,
			TLS: l.authority.calls(own), PeerTLS: l.authority.serves(own), NoIsolation: l.opts.noIsolation, UIDs: uids,
		}), nil
	}
	p := l.supervisor.add(at.within(l.childSpec(rankNode, string(node), []string{childNode, string(node)}, input)))
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.start(ctx)
}

// deliver puts the examples into sites that never had them, and shows which nodes hold what. After that they belong
// to the operator: changed or deleted ones stay so.
func (l *laptop) deliver(ctx context.Context, sites []fleet.SiteName) error {
	if l.opts.empty {
		return nil
	}
	began := time.Now()
	known, err := l.dir.readState()
	if err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(sites), func(s fleet.SiteName) bool {
		return slices.Contains(known.Seeded, string(s))
	})
	if err := l.seed(ctx, fresh); err != nil {
		return err
	}
	for _, site := range fresh {
		known.Seeded = append(known.Seeded, string(site))
	}
	if err := l.dir.writeState(known); err != nil {
		return fmt.Errorf("remember the deliveries: %w", err)
	}
	seen, wrong := l.api.awaitHolders(ctx, sites, l.opts.pace.startsWithin())
	if wrong == nil {
		l.say("%d instances are held alike by both nodes of their site after %s", len(seen), seconds(time.Since(began)))
	}
	l.say("")
	if err := printHolders(l.out.progress, seen); err != nil {
		return fmt.Errorf("print who holds what: %w", err)
	}
	if wrong != nil {
		return fmt.Errorf("wait until both nodes hold the same: %w", wrong)
	}
	return nil
}

// seed puts the examples into the sites and waits for their deliveries.
func (l *laptop) seed(ctx context.Context, sites []fleet.SiteName) error {
	if len(sites) == 0 {
		return nil
	}
	if err := l.api.putTemplates(ctx); err != nil {
		return err
	}
	var started []delivery
	for _, site := range sites {
		begun, err := l.api.putInstances(ctx, site)
		if err != nil {
			return err
		}
		started = append(started, begun...)
	}
	return l.api.awaitDeliveries(ctx, started)
}

// downloadCache is shared by all regions of this user; a user without a home keeps it in
// the data directory.
func downloadCache(d *dataDir) string {
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "holdfast", "postgres")
	}
	return d.file("postgres-binaries")
}
