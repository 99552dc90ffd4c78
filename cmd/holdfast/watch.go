package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// watchFlags are flags of commands that show what can change.
type watchFlags struct {
	watch bool
	limit int
	over  func(view) (bool, error) // ends a watch, nil for never
}

func (w *watchFlags) addWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "keep showing changes, until interrupted or --timeout")
}

func (w *watchFlags) add(cmd *cobra.Command, limit int) {
	w.addWatch(cmd)
	cmd.Flags().IntVar(&w.limit, "limit", limit, "show at most this many, 0 for all")
}

// show prints what fetch returns; with --watch it then prints the items that change.
func (c *cli) show(ctx context.Context, w watchFlags, fetch func(context.Context) (view, error)) error {
	v, err := fetch(ctx)
	if err != nil {
		return err
	}
	if !w.watch {
		return c.print(v)
	}
	seen := map[string][]byte{}
	columns := &columns{}
	for {
		changed, err := changes(seen, v)
		if err != nil {
			return err
		}
		if err := c.printChanges(columns, changed); err != nil {
			return err
		}
		if w.over != nil {
			if over, err := w.over(v); over {
				return err
			}
		}
		if v, err = c.fetchAgain(ctx, fetch); err != nil {
			return endOfWatch(ctx, err)
		}
	}
}

// fetchAgain tolerates an unreachable region for a while.
func (c *cli) fetchAgain(ctx context.Context, fetch func(context.Context) (view, error)) (view, error) {
	asked := c.now()
	for {
		if err := pause.For(ctx, c.poll); err != nil {
			return view{}, err
		}
		v, err := fetch(ctx)
		if err == nil || exitCodeOf(err) != exitUnreachable || c.now().Sub(asked) > patience {
			return v, err
		}
	}
}

// endOfWatch: an interrupt is the normal end of a watch.
func endOfWatch(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

// changes returns the items that are new or differ, and those that are gone.
func changes(seen map[string][]byte, v view) (view, error) {
	out := view{header: v.header}
	here := map[string]bool{}
	for _, it := range v.items {
		data, err := json.Marshal(it.value)
		if err != nil {
			return out, fmt.Errorf("compare %s: %w", it.name, err)
		}
		here[it.name] = true
		if !bytes.Equal(seen[it.name], data) {
			out.items = append(out.items, it)
		}
		seen[it.name] = data
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if !here[name] && v.next == "" { // in a truncated list it may just have moved out of view
			out.items = append(out.items, goneItem(name, seen[name]))
			delete(seen, name)
		}
	}
	return out, nil
}

// goneItem stands for an item that no longer exists.
func goneItem(name string, last json.RawMessage) item {
	value := struct {
		Name string          `json:"name"`
		Gone bool            `json:"gone"`
		Last json.RawMessage `json:"last"`
	}{name, true, last}
	return item{name: name + " (gone)", value: value, cells: []string{name, "gone"}}
}

// printChanges prints one document (JSON: one line) per item, or table lines under one header.
func (c *cli) printChanges(under *columns, v view) error {
	for _, it := range v.items {
		switch c.flags.output {
		case formatTable:
			under.print(c.stdout, v.header, it.cells)
		case formatName:
			fmt.Fprintln(c.stdout, it.name)
		case formatYAML:
			fmt.Fprintln(c.stdout, "---")
			if err := writeYAML(c.stdout, it.value); err != nil {
				return err
			}
		case formatJSON:
			if err := writeLine(c.stdout, it.value); err != nil {
				return err
			}
		}
	}
	return nil
}
