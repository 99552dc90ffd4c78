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
	{api.PathNeedsRestart, "needs restart"},
	{api.PathDeferred, "deferred"},
}

// fieldNames makes JSON pointers readable: process.env.X.
var fieldNames = strings.NewReplacer("/", ".", "~1", "/", "~0", "~")

// showChanges writes a line for each path that fields of a deployment take to what runs.
func (c *cli) showChanges(indent string, changes []api.SpecChange) {
	for _, line := range changePaths {
		var fields []api.SpecChange
		for _, change := range changes {
			if change.Path == line.path {
				fields = append(fields, change)
			}
		}
		if len(fields) > 0 {
			fmt.Fprintf(c.stdout, "%s%s: %s\n", indent, line.text, clean(fieldsText(fields)))
		}
	}
}

// fieldsText lists fields as a person writes them.
func fieldsText(fields []api.SpecChange) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = fieldNames.Replace(strings.TrimPrefix(f.Field, "/"))
		if f.Field == "" {
			names[i] = "what its type generates"
		}
	}
	return strings.Join(names, ", ")
}
