package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// table is lines of cells in columns.
type table struct{ rows [][]string }

func newTable(header []string) *table { return &table{rows: [][]string{header}} }

func (t *table) add(cells []string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	var c columns
	for _, row := range t.rows {
		c.fit(row)
	}
	c.begin(t.rows[0])
	for i, row := range t.rows {
		if err := c.line(w, row, i == 0); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}
	return nil
}

// lineWidth is how wide the lines of tables may become.
const lineWidth = 120

// columns is a table whose lines arrive one by one: a column widens if a cell needs it. What does not fit beside the
// others is written below its line, with the name of its column.
//
//	REPLICA        NODE        STATE      SINCE
//	0af3c21b9d44   plant-1-a   STARTING   5s
//	    message: it must be healthy by 2026-07-01T12:00:00Z
type columns struct {
	header []string
	widths []int
	below  []bool
	gap    int
}

// print writes a line, and before the first one the header.
func (c *columns) print(w io.Writer, header, cells []string) {
	c.fit(header)
	c.fit(cells)
	if c.header == nil {
		c.begin(header)
		_ = c.line(w, header, true) // a lost terminal shows below
	}
	_ = c.line(w, cells, false)
}

func (c *columns) fit(cells []string) {
	for i, cell := range cells {
		if i == len(c.widths) {
			c.widths = append(c.widths, 1)
		}
		c.widths[i] = max(c.widths[i], utf8.RuneCountInString(clean(cell)))
	}
}

// goBelow are the columns that go below first, in this order: explanations, then what -o json is for.
var goBelow = []string{"MESSAGE", "TO END IT", "NODES", "WHY", "REASON", "BY", "HASH", "UNTIL", "AGE"}

// begin chooses the columns that go below by the cells that are known: those of goBelow, then the widest. The first column
// stays: it names the line.
func (c *columns) begin(header []string) {
	c.header, c.below, c.gap = header, make([]bool, len(header)), 3
	if c.width() > lineWidth {
		c.gap = 2
	}
	for _, name := range goBelow {
		if at := slices.Index(header, name); at > 0 && c.width() > lineWidth {
			c.below[at] = true
		}
	}
	for c.width() > lineWidth {
		widest := 0
		for i := 1; i < len(header); i++ {
			if !c.below[i] && (widest == 0 || c.widths[i] >= c.widths[widest]) {
				widest = i
			}
		}
		if widest == 0 {
			return
		}
		c.below[widest] = true
	}
}

func (c *columns) width() int {
	total := -c.gap
	for i, width := range c.widths {
		if !c.below[i] {
			total += width + c.gap
		}
	}
	return total
}

func (c *columns) line(w io.Writer, cells []string, header bool) error {
	var line, rest strings.Builder
	for i, cell := range cells {
		cell = clean(cell)
		switch at := min(i, len(c.widths)-1); {
		case !c.below[at] && utf8.RuneCountInString(line.String()+first(cell, "-")) <= lineWidth:
			fmt.Fprintf(&line, "%-*s", c.widths[at]+c.gap, first(cell, "-"))
		case cell != "" && !header:
			if rest.Len() > 0 {
				rest.WriteString("; ")
			}
			fmt.Fprintf(&rest, "%s: %s", strings.ToLower(c.header[at]), cell)
		}
	}
	lines := []string{strings.TrimRight(line.String(), " ")}
	if rest.Len() > 0 {
		for _, part := range wrap(rest.String(), lineWidth-len(belowIndent)) {
			lines = append(lines, belowIndent+part)
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

const belowIndent = "    "

// wrap breaks a text at spaces, and a word that is too long anywhere.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		runes := []rune(word)
		for ; len(runes) > width; runes = runes[width:] {
			lines = append(lines, string(runes[:width]))
		}
		line = string(runes)
	}
	return append(lines, line)
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
