package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	holdersTimeout = time.Minute
	// startsWithin is how long to wait for commands to start once a node holds the lease; a command that cannot
	// start is shown as not running.
	startsWithin = 10 * time.Second
)

// startsWithin includes the time for a lost lease, or one of an earlier run, to expire and to be won.
func (p pace) startsWithin() time.Duration { return startsWithin + 2*p.timing().Link.HeartbeatTimeout }

// instanceView is what the table needs of an instance.
type instanceView struct {
	Name string `json:"name"`
	Spec struct {
		Enabled *bool           `json:"enabled"` // true when it is not said
		Run     json.RawMessage `json:"run"`
	} `json:"spec"`
	Status struct {
		Nodes []holder `json:"nodes"`
	} `json:"status"`
	site fleet.SiteName
}

// holder is a node that holds a revision of an instance.
type holder struct {
	Node         fleet.NodeName `json:"node"`
	Role         fleet.Role     `json:"role"`
	Revision     int64          `json:"revision"`
	RevisionHash fleet.Hash     `json:"revisionHash"`
	Running      bool           `json:"running"`
}

// holders lists the instances of the sites with the nodes that hold them.
func (c *apiClient) holders(ctx context.Context, sites []fleet.SiteName) ([]instanceView, error) {
	var all []instanceView
	for _, site := range sites {
		next := ""
		for page := true; page; page = next != "" {
			var list struct {
				Items []instanceView `json:"items"`
				Next  string         `json:"next"`
			}
			path := fmt.Sprintf("/api/v1/sites/%s/instances", site)
			if next != "" {
				path += "?cursor=" + url.QueryEscape(next)
			}
			if err := c.call(ctx, http.MethodGet, path, nil, &list); err != nil {
				return nil, fmt.Errorf("list the instances of %s: %w", site, err)
			}
			for _, i := range list.Items {
				i.site = site
				all = append(all, i)
			}
			next = list.Next
		}
	}
	return all, nil
}

// whole reports why two nodes do not yet hold an instance alike, nil if they do.
func (i instanceView) whole() error {
	nodes := i.Status.Nodes
	if len(nodes) < 2 {
		return fmt.Errorf("%s/%s is held by %d nodes", i.site, i.Name, len(nodes))
	}
	for _, n := range nodes {
		if n.RevisionHash == "" || n.RevisionHash != nodes[0].RevisionHash {
			return fmt.Errorf("%s/%s is not the same on %s and %s", i.site, i.Name, nodes[0].Node, n.Node)
		}
	}
	return nil
}

// starts reports why an instance with a command does not run yet, nil if it does.
func (i instanceView) starts() error {
	wanted := len(i.Spec.Run) > 0 && (i.Spec.Enabled == nil || *i.Spec.Enabled)
	if wanted && !slices.ContainsFunc(i.Status.Nodes, func(n holder) bool { return n.Running }) {
		return fmt.Errorf("%s/%s does not run", i.site, i.Name)
	}
	return nil
}

// awaitHolders waits until its nodes hold every instance alike, and then a while for commands to start. It returns
// the last state also with an error.
func (c *apiClient) awaitHolders(ctx context.Context, sites []fleet.SiteName, starts time.Duration) ([]instanceView, error) {
	var seen []instanceView
	until := func(so func(instanceView) error) func(context.Context) error {
		return func(ctx context.Context) error {
			now, err := c.holders(ctx, sites)
			if err != nil {
				return err
			}
			seen = now
			for _, i := range now {
				if err := so(i); err != nil {
					return err
				}
			}
			return nil
		}
	}
	err := pollErr(ctx, holdersTimeout, until(instanceView.whole))
	if err == nil {
		_ = pollErr(ctx, starts, until(instanceView.starts)) // the table says which do not
	}
	return seen, err
}

const shownHash = 12

// printHolders is the table of who holds which hash.
func printHolders(w io.Writer, instances []instanceView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SITE\tINSTANCE\tNODE\tROLE\tREVISION\tHASH\tRUNNING")
	for _, i := range instances {
		for _, n := range i.Status.Nodes {
			hash := string(n.RevisionHash)
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%t\n", i.site, i.Name, n.Node, n.Role, n.Revision,
				hash[:min(len(hash), shownHash)], n.Running)
		}
	}
	return t.Flush()
}
