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

// figure is one line of the report. Value is what is compared with the limit: a ratio to the
// yardstick, or, with a unit, the measured value itself.
type figure struct {
	name                      string
	measured, yardstick, note string
	value, limit              float64
	unit                      string
	least                     bool // the limit is a lower one
	others                    float64
}

func atMost(name string, value, limit float64) figure {
	return figure{name: name, value: value, limit: limit}
}

func atLeast(name string, value, limit float64) figure {
	return figure{name: name, value: value, limit: limit, least: true}
}

func (f figure) ok() bool {
	if f.least {
		return f.value >= f.limit
	}
	return f.value <= f.limit
}

func (f figure) cells() []string {
	ratio, sign, verdict := "", "≤", "yes"
	if f.yardstick != "" {
		ratio = fmt.Sprintf("%.2f", f.value)
	}
	if f.least {
		sign = "≥"
	}
	if !f.ok() {
		verdict = "**no**"
	}
	limit := strings.TrimSpace(sign + " " + strconv.FormatFloat(f.limit, 'f', -1, 64) + " " + f.unit)
	return []string{f.name, f.measured, cmp.Or(f.yardstick, "-"), cmp.Or(ratio, "-"), limit, verdict, fmt.Sprintf("%.1f", f.others), f.note}
}

// quantile of times; q is below 1.
func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[int(q*float64(len(sorted)))]
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

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

// page is docs/benchmarks.md: what was measured now, and of an older page what was not.
func (r report) page(older string) string {
	return pageHead + table(merged(r.rows(), rowsOf(older))) + pageFoot
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

const pageHead = `# Benchmarks

Made by ` + "`task bench -- -write`" + `; nothing in it is written by hand. Each figure is set against a
yardstick of the same run, on the same machine. With ` + "`-only`" + ` the other figures stay as they were.

`

const pageFoot = `
*others*: the cores that everything else on the machine used meanwhile; a figure measured beside
a busy neighbour is worth little.

## What is measured

* **Latency**: PUT of a 64 KB JSON with new content through the API, then GET of its operation
  with a wait, until both nodes are durable; against the start and the result of a bare workflow
  with two regular activities that do nothing, on the same Temporal, with its own queue and
  worker. They take turns: one delivery, one bare workflow, and so on, n of each after a warm-up.
  What a delivery costs in Temporal is counted from the histories.
* **Throughput**: n deliveries, 50 at a time, to n instances of two sites, against n bare
  workflows, 50 at a time; three rounds of each in turn, after one that makes the instances.
* **Artifact**: 300 MB from the answer to the PUT until both nodes are durable, against curl to a
  file and then inserts of 1 MiB into SQLite (WAL, synchronous FULL, a commit each), done twice
  since there are two nodes; two rounds of each in turn.
* **Idle**: a fresh region with the examples and default timing. Ready is the time from the start
  of the program to its word that the region is up, examples delivered. CPU over 30 s, from 15 s
  after that; guardians, Postgres and the program itself included.
* **Nodes**: 2,000 nodes of 1,000 sites, enrolled, connected and compared once; each with a worker and a stream
  of its own, in the process of this program. From 5 minutes after the last of them went idle, resident memory and
  CPU over a minute. Then comparisons of 40 nodes that idle, each again while it is awake.
* **Memory**: the highest resident memory while an artifact is uploaded and delivered, and while a
  JSON of 40 MB of strings is put and delivered, above that of the same processes 15 s after the start.
* **Plan**: a plan of 10,000 instances of 4 KB over 10 sites that stand as they are asked for, by
  the client's request of some 40 MB and back; the highest resident memory of the server meanwhile, with what is left of declaring them.
* **Reconcile**: a node that holds 10,000 instances of 4 KB (put there as though they had been
  delivered before, and fetched by a comparison). The expected set is read whole, over HTTP,
  compressed. The drift is one instance in a hundred with new content: the whole comparison, from
  its first step at the store to its last, against fetching those hundred configs from the endpoint of single
  deliveries with plain requests, one after the other, and committing each to SQLite (WAL, synchronous FULL).
* **Fleet**: 10,000 instances of a template of 4 KB with overrides of their own, over 10 sites, all
  delivered once; then three fleet changes that patch every one of them, from the PUT until the
  operation has succeeded and both nodes of each are durable, which is counted. 1,000 instances in a
  batch, four sites at once.
* **Execute**: POST of an input of 80 bytes to a module with two members, schemas of input and output checked,
  until its answer is read; against a bare gRPC call to one of the members. They take turns, 10 n of
  each after a warm-up; all on this machine.
* **Connections**: 5,000 providers of one identity in a process of their own, by the Go package, each on its own
  TCP connection, heartbeats every 5 s, on the one server with all of its roles. CPU over a minute; the highest resident
  memory since the first one came. Then 500 TCP connections are shut down at once: the time until all providers are
  Active again, while another identity registers without a pause. Then the server, the providers and all of Postgres
  are stopped for 2 s (SIGSTOP), one after the other: the connections that end within 18 s of each.
* **Placement**: the decision alone, in this process's own time of one core: a fleet of 5,000 nodes is filled with
  150,000 replicas of deployments that differ in where they may run, 10 at once; at each tenth 1,000 single replicas are
  placed and timed.
* **Deployments**: one replica of a program that listens at once, from the PUT until the database says HEALTHY, 100
  times; then kill -9 of a replica, until it is known and until another is HEALTHY, 20 times. Then 1,000 deployments,
  one in ten with a replica that is probed every second: the runs of their entities that begin within 2 minutes once
  nothing is under way.
`

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
