package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table is lines of cells in columns.
type table struct{ rows [][]string }

func newTable(header []string) *table { return &table{rows: [][]string{header}} }

func (t *table) add(cells []string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	for _, row := range t.rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(columns, "\t")
			}
			fmt.Fprint(columns, first(clean(cell), "-"))
		}
		fmt.Fprintln(columns)
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// columns is a table whose lines arrive one by one: a column widens if a cell needs it.
type columns struct{ widths []int }

func (c *columns) print(w io.Writer, header, cells []string) {
	if c.widths == nil {
		c.widths = make([]int, len(header))
		c.fit(header)
		c.fit(cells)
		c.line(w, header)
	}
	c.fit(cells)
	c.line(w, cells)
}

func (c *columns) fit(cells []string) {
	for i, cell := range cells {
		if i < len(c.widths) {
			c.widths[i] = max(c.widths[i], len([]rune(clean(cell))))
		}
	}
}

func (c *columns) line(w io.Writer, cells []string) {
	var line strings.Builder
	for i, cell := range cells {
		fmt.Fprintf(&line, "%-*s   ", c.widths[min(i, len(c.widths)-1)], first(clean(cell), "-"))
	}
	fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
}

// clean keeps foreign text (names, reasons) from controlling the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}

// cleanLines is clean for multi-line text.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		lines[i] = indent + clean(l)
	}
	return strings.Join(lines, "\n")
}

func yesNo(b bool) string { //nolint:revive // formatting a bool is its whole purpose
	if b {
		return "yes"
	}
	return "no"
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// short is enough of a hash to distinguish it.
func short[S ~string](hash S) string {
	if len(hash) > 12 {
		return string(hash[:12])
	}
	return string(hash)
}

// bytesText is a size in the largest unit that keeps it above one.
func bytesText(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), ""
	for i := 0; i < len(units) && size >= 1024; i++ {
		size, unit = size/1024, units[i]
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// ago is how long ago something was, in at most its two largest units.
func (c *cli) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(c.now().Sub(t))
}

func (c *cli) agoOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return c.ago(*t)
}

func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func stampOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return stamp(*t)
}
