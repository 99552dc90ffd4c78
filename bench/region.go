package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/holdfast-io/holdfast/api"
)

// lab is where measurements take place: a folder, and the laptop region's program built
// into it. The program is spawned, never imported: it is a module of its own.
type lab struct {
	n, objects int
	keep       bool
	dir        string
	program    string
}

func newLab(ctx context.Context, o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as /proc shows the program
		return nil, fmt.Errorf("find the folder: %w", err)
	}
	l := &lab{n: o.n, objects: o.objects, keep: o.keep, dir: dir, program: filepath.Join(dir, "temporal-dev")}
	l.say("building temporal-dev …")
	build := exec.CommandContext(ctx, "go", "build", "-C", "temporal-dev", "-o", l.program, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		l.close()
		return nil, fmt.Errorf("build temporal-dev (start me in the root of the repository): %w", err)
	}
	return l, nil
}

func (l *lab) close() {
	if l.keep {
		l.say("kept: %s", l.dir)
		return
	}
	if err := os.RemoveAll(l.dir); err != nil {
		l.say("%s is left over: %v", l.dir, err)
	}
}

// say tells the person who waits; the report alone goes to standard output.
func (l *lab) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// region is a running laptop region.
type region struct {
	keep     bool
	dir      string
	cmd      *exec.Cmd
	exited   chan struct{} // closed when it has ended; ended and trouble are valid from then on
	ended    error
	trouble  *bytes.Buffer
	readyIn  time.Duration
	api      *api.Client
	temporal client.Client
	doc      devDoc
}

// devDoc is what we read of DIR/dev.json.
type devDoc struct {
	API       string       `json:"api"`
	Link      string       `json:"link"` // host:port
	Temporal  string       `json:"temporal"`
	Namespace string       `json:"namespace"`
	Token     string       `json:"token"`
	Processes []devProcess `json:"processes"`
}

type devProcess struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

const (
	// upLine and upLines begin the line by which temporal-dev says that everything answers.
	upLine     = "the region is up"
	upLines    = "the regions are up"
	startLimit = 3 * time.Minute
	stopLimit  = time.Minute
	// crowd is how many are under way at once where throughput is measured.
	crowd = 50
)

// start starts a fresh region and returns when it says that it is up.
func (l *lab) start(ctx context.Context, flags ...string) (*region, error) {
	r, err := l.launch(ctx, nil, flags...)
	if err != nil {
		return nil, err
	}
	if err := r.connect(); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// launch starts the program, with more in its environment, and returns when all is up.
func (l *lab) launch(ctx context.Context, env []string, flags ...string) (*region, error) {
	dir, err := os.MkdirTemp(l.dir, "region-")
	if err != nil {
		return nil, fmt.Errorf("make a data directory: %w", err)
	}
	any0 := "127.0.0.1:0"
	args := append([]string{"--data", dir, "--api", any0, "--temporal", any0, "--web", any0}, flags...)
	r := &region{keep: l.keep, dir: dir, exited: make(chan struct{}), trouble: &bytes.Buffer{}}
	r.cmd = exec.Command(l.program, args...)
	r.cmd.Stderr = r.trouble
	r.cmd.Env = append(os.Environ(), env...)
	// Its own group, so that Ctrl-C reaches us alone and we stop it in order.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("listen to temporal-dev: %w", err)
	}
	began := time.Now()
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start temporal-dev: %w", err)
	}
	up := make(chan struct{})
	go func() {
		lines, printed := bufio.NewScanner(out), false
		for lines.Scan() {
			if is := lines.Text(); !printed && (strings.HasPrefix(is, upLine) || strings.HasPrefix(is, upLines)) {
				printed = true
				close(up)
			}
		}
		r.ended = r.cmd.Wait()
		close(r.exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case <-up:
		r.readyIn = time.Since(began)
	case <-r.exited:
		return nil, fmt.Errorf("temporal-dev ended (%w):\n%s", r.ended, r.trouble)
	case <-ctx.Done():
		r.stop()
		return nil, fmt.Errorf("wait for the region: %w", ctx.Err())
	}
	return r, nil
}

func (r *region) connect() error {
	text, err := os.ReadFile(filepath.Join(r.dir, "dev.json"))
	if err != nil {
		return fmt.Errorf("read dev.json: %w", err)
	}
	if err := json.Unmarshal(text, &r.doc); err != nil {
		return fmt.Errorf("read dev.json: %w", err)
	}
	// One connection per request under way: ours is not the client that is measured.
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * crowd}
	if r.api, err = api.NewClient(r.doc.API, r.doc.Token, api.WithTransport(transport)); err != nil {
		return err
	}
	r.temporal, err = client.Dial(client.Options{
		HostPort: r.doc.Temporal, Namespace: r.doc.Namespace, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("dial Temporal: %w", err)
	}
	return nil
}

// stop ends the region and gives its disk space back.
func (r *region) stop() {
	if r.temporal != nil {
		r.temporal.Close()
	}
	_ = r.cmd.Process.Signal(os.Interrupt) // it may have ended by itself
	patience := time.NewTimer(stopLimit)
	defer patience.Stop()
	select {
	case <-r.exited:
	case <-patience.C:
		_ = r.cmd.Process.Kill() // its children die with it
		<-r.exited
	}
	if r.keep {
		return
	}
	if err := os.RemoveAll(r.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// pid is the process of a name in dev.json.
func (r *region) pid(name string) (int, error) {
	for _, p := range r.doc.Processes {
		if p.Name == name && p.PID != 0 {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("no process %s runs", name)
}
