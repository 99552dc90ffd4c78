package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// format is an output format.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"
)

var formats = []string{string(formatTable), string(formatJSON), string(formatYAML), string(formatName)}

// String, Set and Type make it a flag that rejects other words.
func (f *format) String() string { return string(*f) }

// Set accepts one of the formats.
func (f *format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("want %s", fleet.OrList(formats))
	}
	*f = format(s)
	return nil
}

// Type is its name in help texts.
func (f *format) Type() string { return "FORMAT" }

// item is one thing to print, in all formats.
type item struct {
	name  string // kind/name, for -o name
	value any    // for json and yaml: the shape of the API
	cells []string
}

// view is the output of a command.
type view struct {
	header []string
	items  []item
	next   string // cursor of the rest, "" if complete
	single bool   // one thing, not a list of one
}

func single(header []string, it item) view {
	return view{header: header, items: []item{it}, single: true}
}

// value is the view in the shape of the API.
func (v view) value() any {
	if v.single {
		return v.items[0].value
	}
	list := struct {
		Items []any  `json:"items"`
		Next  string `json:"next,omitempty"`
	}{Items: []any{}, Next: v.next}
	for _, it := range v.items {
		list.Items = append(list.Items, it.value)
	}
	return list
}

// print writes a view to stdout in the requested format.
func (c *cli) print(v view) error {
	switch c.flags.output {
	case formatJSON, formatYAML:
		return c.printValue(v.value())
	case formatName:
		for _, it := range v.items {
			fmt.Fprintln(c.stdout, it.name)
		}
		return nil
	case formatTable:
	}
	if len(v.items) == 0 {
		fmt.Fprintln(c.stderr, "nothing found")
		return nil
	}
	t := newTable(v.header)
	for _, it := range v.items {
		t.add(it.cells)
	}
	if err := t.write(c.stdout); err != nil {
		return err
	}
	if v.next != "" {
		fmt.Fprintln(c.stderr, "there are more: raise --limit")
	}
	return nil
}

// printValue writes JSON or YAML.
func (c *cli) printValue(value any) error {
	if c.flags.output == formatYAML {
		return writeYAML(c.stdout, value)
	}
	return writeJSON(c.stdout, value)
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// writeLine writes JSON on one line, for streams.
func writeLine(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
