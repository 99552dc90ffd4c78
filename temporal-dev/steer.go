package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// steer is the client of control: ps, stop NAME and start NAME.
func steer(verb string, args []string, stdout, stderr io.Writer) error {
	name, data, err := parseSteer(verb, args, stderr)
	if err != nil {
		return err
	}
	method, path := http.MethodGet, "/processes"
	if verb != "ps" {
		method, path = http.MethodPost, "/processes/"+url.PathEscape(name)+"/"+verb
	}
	views, err := callControl(context.Background(), data, method, path)
	if err != nil {
		return err
	}
	return printProcesses(stdout, views, time.Now())
}

// parseSteer accepts --data before and after the name.
func parseSteer(verb string, args []string, stderr io.Writer) (name, data string, err error) {
	flags := flag.NewFlagSet("temporal-dev "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&data, "data", defaultData, "the data directory of the running region")
	var names []string
	for rest := args; ; {
		if err := flags.Parse(rest); err != nil {
			return "", "", asUsage(err)
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
		rest = flags.Args()[1:]
	}
	switch {
	case verb == "ps" && len(names) == 0:
		return "", data, nil
	case verb != "ps" && len(names) == 1 && validProcess(names[0]):
		return names[0], data, nil
	case verb == "ps":
		return "", "", usageError{errors.New("usage: temporal-dev ps [--data DIR]")}
	default:
		return "", "", usageError{fmt.Errorf("usage: temporal-dev %s NAME [--data DIR]", verb)}
	}
}

// validProcess reports whether a name can be that of a process: server, or eu/server.
func validProcess(name string) bool {
	if region, rest, several := strings.Cut(name, "/"); several {
		return slices.Contains(regionNames, region) && fleet.ValidateName("name", rest) == nil
	}
	return fleet.ValidateName("name", name) == nil
}

// steerLink is cut A B and heal A B.
func steerLink(verb string, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("temporal-dev "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	data := flags.String("data", defaultData, "the data directory of the running regions")
	oneWay := flags.Bool("one-way", false, "only what A sends to B")
	var names []string
	for rest := args; ; {
		if err := flags.Parse(rest); err != nil {
			return asUsage(err)
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
		rest = flags.Args()[1:]
	}
	if len(names) != 2 || names[0] == names[1] || !slices.Contains(regionNames, names[0]) || !slices.Contains(regionNames, names[1]) {
		return usageError{fmt.Errorf("usage: temporal-dev %s A B [--one-way] [--data DIR]; A and B are two of %s", verb, strings.Join(regionNames, ", "))}
	}
	ways := both(names[0], names[1])
	if *oneWay {
		ways = ways[:1]
	}
	query := url.Values{}
	for _, w := range ways {
		query.Add("way", w.from+" "+w.to)
	}
	if _, err := callControl(context.Background(), *data, http.MethodPost, "/links/"+verb+"?"+query.Encode()); err != nil {
		return err
	}
	for _, w := range ways {
		_, _ = fmt.Fprintf(stdout, "%s: %s to %s\n", verb, w.from, w.to)
	}
	return nil
}

func callControl(ctx context.Context, data, method, path string) ([]processView, error) {
	dir, err := os.Open(data)
	if err != nil {
		return nil, noRegion(data)
	}
	defer func() { _ = dir.Close() }()
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", shortPath(dir))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://region"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	res, err := client.Do(req)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("reach the region on %s: %w", data, os.ErrPermission)
	}
	if err != nil {
		return nil, noRegion(data)
	}
	defer func() { _ = res.Body.Close() }()
	return readViews(res)
}

func readViews(res *http.Response) ([]processView, error) {
	if res.StatusCode != http.StatusOK {
		var problem controlProblem
		if err := json.NewDecoder(res.Body).Decode(&problem); err != nil {
			return nil, fmt.Errorf("the region answered %s", res.Status)
		}
		return nil, fleet.Errorf(problem.Kind, "%s", problem.Detail)
	}
	var views []processView
	if err := json.NewDecoder(res.Body).Decode(&views); err != nil {
		return nil, fmt.Errorf("read the region's answer: %w", err)
	}
	return views, nil
}

func noRegion(data string) error {
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	return fleet.Errorf(fleet.Unavailable, "no region runs on %s", data).
		WithHint("start one with temporal-dev, or give its directory with --data")
}

func printProcesses(w io.Writer, views []processView, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tSTATE\tPID\tSTARTS\tSINCE")
	for _, v := range views {
		since := "-"
		if !v.Since.IsZero() {
			since = now.Sub(v.Since).Round(time.Second).String()
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", v.Name, v.word(), v.PID, v.Starts, since)
	}
	return t.Flush()
}

// word is the state for people.
func (v processView) word() string {
	switch {
	case v.Running && v.Wanted:
		return "running"
	case v.Running:
		return "stopping"
	case v.Wanted:
		return "restarting"
	default:
		return "stopped"
	}
}
