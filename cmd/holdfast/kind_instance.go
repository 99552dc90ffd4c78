package main

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var instanceHeader = []string{"NAME", "PHASE", headerSynced, "ENABLED", "REVISION", "DESIRED", "REPLICATED", "RUNNING ON", "HASH", "UPDATED"}

func instanceCells(c *cli, o api.Object) []string {
	spec, status := instanceOf(o)
	running := ""
	for _, n := range status.Nodes {
		if n.Running {
			running = n.Node
		}
	}
	phase := status.Phase
	if o.DeletingSince != nil {
		phase = "deleting"
	}
	return []string{
		o.Site + "/" + o.Name, phase, syncedWord(syncedOf(o.Status)), yesNo(spec.Enabled), number(status.Revision), number(status.DesiredRevision),
		status.Replicated, running, short(status.RevisionHash), c.ago(o.UpdatedAt),
	}
}

// instanceOf decodes the fields that this version knows; -o json shows everything.
func instanceOf(o api.Object) (fleet.InstanceSpec, api.InstanceStatus) {
	var spec fleet.InstanceSpec
	var status api.InstanceStatus
	_ = json.Unmarshal(o.Spec, &spec)     // an unknown shape stays empty in a table
	_ = json.Unmarshal(o.Status, &status) // likewise
	return spec, status
}
