package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

//go:embed examples
var exampleFiles embed.FS

const deliveryTimeout = 3 * time.Minute

// example is a declared object to put into the region.
type example struct {
	name string
	spec json.RawMessage
}

// examplesIn reads one folder of examples, ordered by name.
func examplesIn(folder string) ([]example, error) {
	entries, err := exampleFiles.ReadDir(path.Join("examples", folder))
	if err != nil {
		return nil, fmt.Errorf("read the examples: %w", err)
	}
	var all []example
	for _, e := range entries {
		text, err := exampleFiles.ReadFile(path.Join("examples", folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the examples: %w", err)
		}
		all = append(all, example{strings.TrimSuffix(e.Name(), ".json"), text})
	}
	return all, nil
}

// delivery is one example under way.
type delivery struct {
	site     fleet.SiteName
	instance string
	op       operation // without id when nothing had to be done
}

func (d delivery) String() string { return string(d.site) + "/" + d.instance }

// putTemplates puts templates that the region does not have yet.
func (c *apiClient) putTemplates(ctx context.Context) error {
	templates, err := examplesIn("templates")
	if err != nil {
		return err
	}
	for _, t := range templates {
		where := "/api/v1/templates/" + t.name
		there, err := c.exists(ctx, where)
		if err != nil {
			return fmt.Errorf("look for template %s: %w", t.name, err)
		}
		if there {
			continue
		}
		if err := c.call(ctx, http.MethodPut, where, t.spec, nil); err != nil {
			return fmt.Errorf("put template %s: %w", t.name, err)
		}
	}
	return nil
}

// putInstances puts the example instances of one site and starts their deliveries.
func (c *apiClient) putInstances(ctx context.Context, site fleet.SiteName) ([]delivery, error) {
	instances, err := examplesIn("instances")
	if err != nil {
		return nil, err
	}
	var started []delivery
	for _, i := range instances {
		var answer struct {
			Operation operation `json:"operation"`
		}
		where := fmt.Sprintf("/api/v1/sites/%s/instances/%s", site, i.name)
		if err := c.call(ctx, http.MethodPut, where, i.spec, &answer); err != nil {
			return started, fmt.Errorf("put instance %s of %s: %w", i.name, site, err)
		}
		started = append(started, delivery{site, i.name, answer.Operation})
	}
	return started, nil
}

// awaitDeliveries waits until all have ended and names those that failed.
func (c *apiClient) awaitDeliveries(ctx context.Context, started []delivery) error {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	var failed []string
	for _, d := range started {
		if d.op.ID == "" {
			continue
		}
		op, err := c.settle(ctx, d.op.ID)
		switch {
		case err != nil:
			return fmt.Errorf("wait for the delivery of %s: %w", d, err)
		case op.State != fleet.OperationSucceeded:
			failed = append(failed, fmt.Sprintf("%s: %s %s", d, op.State, op.Reason))
		}
	}
	if len(failed) > 0 {
		return fleet.Errorf(fleet.ApplyFailed, "not delivered: %s", strings.Join(failed, "; "))
	}
	return nil
}
