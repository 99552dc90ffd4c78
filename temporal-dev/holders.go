package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const holdersTimeout = time.Minute

// instanceView is what the table needs of an instance.
type instanceView struct {
	Name   string `json:"name"`
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

// whole says why an instance is not yet held alike by two nodes, or nothing.
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

// awaitHolders waits until every instance is held alike by its nodes. It gives what it saw
// last, also with an error.
func (c *apiClient) awaitHolders(ctx context.Context, sites []fleet.SiteName) ([]instanceView, error) {
	var seen []instanceView
	err := pollErr(ctx, holdersTimeout, func(ctx context.Context) error {
		now, err := c.holders(ctx, sites)
		if err != nil {
			return err
		}
		seen = now
		for _, i := range now {
			if err := i.whole(); err != nil {
				return err
			}
		}
		return nil
	})
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
