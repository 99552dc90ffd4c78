package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	nodekeys "github.com/holdfast-io/holdfast/internal/identity"
)

const nodesReadyTimeout = time.Minute

// siteNames are plant-1, plant-2, …
func siteNames(count int) []fleet.SiteName {
	var names []fleet.SiteName
	for i := 1; i <= count; i++ {
		names = append(names, fleet.SiteName(fmt.Sprintf("plant-%d", i)))
	}
	return names
}

// laptopSite is a pair: -a is active at first, -b is the standby.
func laptopSite(site fleet.SiteName) fleet.SiteSpec {
	return fleet.SiteSpec{Nodes: []fleet.SiteNode{
		{Name: fleet.NodeName(site + "-a"), Role: fleet.RoleActive},
		{Name: fleet.NodeName(site + "-b"), Role: fleet.RoleStandby},
	}}
}

// declareSite declares a site if the region does not have it. An existing one may have been changed, and stays as
// it is.
func (c *apiClient) declareSite(ctx context.Context, site fleet.SiteName) error {
	path := "/api/v1/sites/" + string(site)
	switch there, err := c.exists(ctx, path); {
	case err != nil:
		return fmt.Errorf("look for site %s: %w", site, err)
	case there:
		return nil
	}
	if err := c.call(ctx, http.MethodPut, path, laptopSite(site), nil); err != nil {
		return fmt.Errorf("declare site %s: %w", site, err)
	}
	return nil
}

// joinToken gets a token for a node that is not enrolled yet, else "". A node has a key long before it is enrolled:
// one that ended between the two enrols at its next start.
func (c *apiClient) joinToken(ctx context.Context, d *dataDir, site fleet.SiteName, node fleet.NodeName) (string, error) {
	key, err := nodekeys.Load(d.file("nodes", string(node), "node.key"))
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return "", fmt.Errorf("look for the key of %s: %w", node, err)
	}
	if err == nil && key.Region() != "" {
		return "", nil
	}
	request := struct {
		Site fleet.SiteName `json:"site"`
		Node fleet.NodeName `json:"node"`
	}{site, node}
	var answer struct {
		Token string `json:"token"`
	}
	if err := c.call(ctx, http.MethodPost, "/api/v1/join-tokens", request, &answer); err != nil {
		return "", fmt.Errorf("ask for a join token for %s: %w", node, err)
	}
	return answer.Token, nil
}

// nodesReady waits until the region reports all of the nodes ready that are wanted by then.
func (c *apiClient) nodesReady(ctx context.Context, wanted func() []fleet.NodeName) error {
	return pollErr(ctx, nodesReadyTimeout, func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Name  fleet.NodeName `json:"name"`
				Ready bool           `json:"ready"`
			} `json:"items"`
		}
		if err := c.call(ctx, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
			return err
		}
		ready := map[fleet.NodeName]bool{}
		for _, n := range list.Items {
			ready[n.Name] = n.Ready
		}
		for _, n := range wanted() {
			if !ready[n] {
				return fmt.Errorf("node %s is not ready", n)
			}
		}
		return nil
	})
}
