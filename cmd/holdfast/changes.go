package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
)

// changePaths are the lines of changed fields, and how each starts.
var changePaths = []struct {
	path api.ChangePath
	text string
}{
	{api.PathInPlace, "in place"},
	{api.PathNewRuntimeObject, "rolls out"},
	{api.PathDeferred, "deferred"},
}

// fieldNames makes JSON pointers readable: process.env.X.
var fieldNames = strings.NewReplacer("/", ".", "~1", "/", "~0", "~")

// showChanges writes a line for each path that fields of a deployment take to what runs.
func (c *cli) showChanges(indent string, changes []api.SpecChange) {
	for _, line := range changePaths {
		var fields []string
		for _, change := range changes {
			switch {
			case change.Path != line.path:
			case change.Field == "":
				fields = append(fields, "what its type generates")
			default:
				fields = append(fields, fieldNames.Replace(strings.TrimPrefix(change.Field, "/")))
			}
		}
		if len(fields) > 0 {
			fmt.Fprintf(c.stdout, "%s%s: %s\n", indent, line.text, clean(strings.Join(fields, ", ")))
		}
	}
}
