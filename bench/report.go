package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const reportFile = "docs/benchmarks.md"

// judged is which values of a figure are compared with its limit; it is their median that counts.
type judged int

const (
	byRatio      judged = iota // to the yardstick
	byValue                    // what was measured, where a rule or the design states it
	byDifference               // what was measured, less the yardstick
)

// figure is one line of the report.
type figure struct {
	name, unit string
	series
	by     judged
	limit  float64
	least  bool // the limit is a lower one
	note   string
	others float64 // cores that everybody else used meanwhile
}

// value is what is compared with the limit.
func (f figure) value() float64 {
	switch f.by {
	case byRatio:
		return median(f.ratios())
	case byDifference:
		return median(f.differences())
	case byValue:
	}
	return median(f.ours)
}

func (f figure) ok() bool {
	if f.least {
		return f.value() >= f.limit
	}
	return f.value() <= f.limit
}

func (f figure) cells() []string {
	limit, verdict := "≤ ", "yes"
	if f.least {
		limit = "≥ "
	}
	if !f.ok() {
		verdict = "**no**"
	}
	limit += strconv.FormatFloat(f.limit, 'f', -1, 64)
	switch f.by {
	case byValue:
		limit = strings.TrimSpace(limit + " " + f.unit)
	case byDifference:
		limit += " " + f.unit + " more"
	case byRatio:
	}
	return []string{
		f.name, spread(f.ours, f.unit), spread(f.plain, f.unit), spread(f.ratios(), ""),
		limit, verdict, fmt.Sprintf("%.1f", f.others), f.note,
	}
}

// spread is the median of values, with the least and the greatest.
func spread(values []float64, unit string) string {
	if len(values) == 0 {
		return "-"
	}
	middle, least, most := short(median(values)), short(slices.Min(values)), short(slices.Max(values))
	if least != most {
		middle += " (" + least + " to " + most + ")"
	}
	return strings.TrimSpace(middle + " " + unit)
}

// short is a number with three digits, or all of those before the point.
func short(v float64) string {
	digits := 2
	for size := max(v, -v); size >= 10 && digits > 0; size /= 10 {
		digits--
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// report is one run of this program.
type report struct {
	machine string
	at      time.Time
	took    time.Duration
	n       int
	figures []figure
}

func (r report) missed() []string {
	var names []string
	for _, f := range r.figures {
		if !f.ok() {
			names = append(names, f.name)
		}
	}
	return names
}

// write puts the figures into the page.
func (r report) write() error {
	older, err := os.ReadFile(reportFile)
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	page, err := r.page(string(older))
	if err != nil {
		return err
	}
	if err := os.WriteFile(reportFile, []byte(page), 0o644); err != nil { //nolint:gosec // a page for everybody
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// page is docs/benchmarks.md with the figures that were measured now; the text around its table
// stays, and so do the figures that were not.
func (r report) page(older string) (string, error) {
	head, rest, found := strings.Cut(older, "| "+columns[0])
	if !found {
		return "", fmt.Errorf("%s has no table", reportFile)
	}
	foot := ""
	for line := range strings.Lines("| " + columns[0] + rest) {
		if foot != "" || !strings.HasPrefix(line, "|") {
			foot += line
		}
	}
	return head + table(merged(r.rows(), rowsOf(older))) + foot, nil
}

// summary is what was measured, where and when.
func (r report) summary() string {
	return fmt.Sprintf("In %.0f minutes, n = %d.\n\n", r.took.Minutes(), r.n) + table(r.rows())
}

func (r report) rows() (rows [][]string) {
	for _, f := range r.figures {
		rows = append(rows, append(f.cells(), r.machine, r.at.UTC().Format("2006-01-02 15:04")))
	}
	return rows
}

var columns = []string{"figure", "measured", "yardstick", "ratio", "limit", "ok", "others", "note", "machine", "when (UTC)"}

func table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	row := func(cells []string) { fmt.Fprintf(t, "| %s |\n", strings.Join(cells, "\t| ")) }
	row(columns)
	row(slices.Repeat([]string{"---"}, len(columns)))
	for _, cells := range rows {
		row(cells)
	}
	_ = t.Flush() // into memory
	return b.String()
}

// rowsOf reads back the rows of a page.
func rowsOf(page string) (rows [][]string) {
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasPrefix(line, "| ") && len(cells) == len(columns) && cells[0] != columns[0] && cells[0] != "---" {
			rows = append(rows, cells)
		}
	}
	return rows
}

// merged has all rows of the measurements made now, and of the others the older ones, in the
// order in which they are made.
func merged(now, older [][]string) [][]string {
	order := map[string]int{}
	for i, m := range measurements() {
		order[m.name] = i
	}
	of := func(row []string) string { name, _, _ := strings.Cut(row[0], ":"); return name }
	made := map[string]bool{}
	for _, row := range now {
		made[of(row)] = true
	}
	all := slices.Concat(now, slices.DeleteFunc(older, func(row []string) bool { return made[of(row)] }))
	slices.SortStableFunc(all, func(a, b []string) int { return cmp.Compare(order[of(a)], order[of(b)]) })
	return all
}

// thisMachine says what the figures were measured on.
func thisMachine() string {
	model, memory := "an unknown CPU", "?"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			if kb, err := strconv.ParseFloat(f[1], 64); err == nil {
				memory = fmt.Sprintf("%.0f GB", kb/(1<<20))
			}
		}
	}
	return fmt.Sprintf("%d cores (%s), %s, %s/%s, %s", runtime.NumCPU(), model, memory, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
