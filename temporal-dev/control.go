package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	controlSocket = "control.sock"
	socketMode    = 0o600
	orderTimeout  = time.Minute
)

// control serves ps, stop and start on a unix socket in the data directory.
type control struct {
	supervisor *supervisor
	wires      *relays // nil with one region
	http       *http.Server
	listener   net.Listener
	dir        *os.File
}

// serveControl listens until close. It replaces a socket that a killed region left: the caller holds the
// directory's lock, so no process listens there.
func serveControl(dir string, s *supervisor, wires *relays) (*control, error) {
	if err := os.Remove(filepath.Join(dir, controlSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	listen := net.ListenConfig{Control: restrict}
	l, err := listen.Listen(context.Background(), "unix", shortPath(d))
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	c := &control{supervisor: s, wires: wires, listener: l, dir: d}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /processes", c.list)
	mux.HandleFunc("POST /processes/{name}/stop", c.order(s.stop))
	mux.HandleFunc("POST /processes/{name}/start", c.order(s.start))
	mux.HandleFunc("GET /links", c.links)
	mux.HandleFunc("POST /links/cut", c.link((*relays).cut))
	mux.HandleFunc("POST /links/heal", c.link((*relays).heal))
	c.http = &http.Server{Handler: mux, ReadHeaderTimeout: orderTimeout}
	go func() { _ = c.http.Serve(l) }() // ends at close
	return c, nil
}

// restrict sets the socket's mode before it has a name, so that no other user can ever connect.
func restrict(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), socketMode) })
	return errors.Join(err, failed)
}

// shortPath names the socket through the open directory: a unix socket's path may have
// 107 bytes only, the path of a data directory any number.
func shortPath(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + controlSocket
}

// close removes the socket while its directory is still open. The listener removes it by the directory's number,
// which the next opened file would get.
func (c *control) close() {
	_ = c.listener.Close() // http.Server closes only what it already serves
	_ = c.http.Close()
	_ = c.dir.Close()
}

func (c *control) list(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, c.supervisor.views())
}

// order performs one stop or start. It continues if the caller disconnects.
func (c *control) order(do func(context.Context, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), orderTimeout)
		defer cancel()
		if err := do(ctx, r.PathValue("name")); err != nil {
			answer(w, http.StatusConflict, controlProblem{Kind: fleet.KindOf(err), Detail: err.Error()})
			return
		}
		c.list(w, r)
	}
}

// links says how much was brought from region to region, for benchmarks.
func (c *control) links(w http.ResponseWriter, _ *http.Request) {
	views := []linkView{}
	if c.wires != nil {
		views = c.wires.views()
	}
	answer(w, http.StatusOK, views)
}

// link cuts or heals the link between two regions.
func (c *control) link(do func(*relays, ...way) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := fleet.Errorf(fleet.IllegalState, "there is one region").WithHint("start temporal-dev with --regions 2 or 3")
		if c.wires == nil {
			answer(w, http.StatusConflict, controlProblem{Kind: err.Kind, Detail: err.Error()})
			return
		}
		var ways []way
		for _, text := range r.URL.Query()["way"] {
			from, to, _ := strings.Cut(text, " ")
			ways = append(ways, way{from, to})
		}
		if err := do(c.wires, ways...); err != nil {
			answer(w, http.StatusConflict, controlProblem{Kind: fleet.NotFound, Detail: err.Error()})
			return
		}
		c.list(w, r)
	}
}

type controlProblem struct {
	Kind   fleet.Kind `json:"kind"`
	Detail string     `json:"detail"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone
}
