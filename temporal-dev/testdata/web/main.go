// Command web is what replicas run in tests: a program that listens on $PORT, answers who it is, and
// is sick or not ready while a file says so, begins when the file $AWAIT is there, and does not heed SIGTERM with
// $STUBBORN. With $DIES it exits after so long, and with $ELSEWHERE it listens on that port. It leaves a file per process in $LEDGER,
// named by its process id, so that a test knows all that ever ran.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	mode       = 0o600
	patience   = 5 * time.Second
	often      = 50 * time.Millisecond
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run() error {
	ledger, replica := os.Getenv("LEDGER"), os.Getenv("HOLDFAST_REPLICA")
	if err := os.WriteFile(filepath.Join(ledger, strconv.Itoa(os.Getpid())+".pid"), []byte(replica), mode); err != nil {
		return err
	}
	if why := os.Getenv("CRASH"); why != "" {
		return fmt.Errorf("it crashes: %s", why)
	}
	stop := make(chan os.Signal, 1)
	if os.Getenv("STUBBORN") == "" {
		signal.Notify(stop, syscall.SIGTERM)
	} else {
		signal.Ignore(syscall.SIGTERM)
	}
	slow, err := time.ParseDuration(os.Getenv("SLOW"))
	if err != nil {
		return err
	}
	started := time.NewTimer(slow)
	select {
	case <-stop:
		return nil
	case <-started.C:
	}
	tick := time.NewTicker(often)
	defer tick.Stop()
	for may := os.Getenv("AWAIT"); may != ""; {
		if _, err := os.Stat(may); err == nil {
			break
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
	return serve(ledger, replica, stop)
}

func serve(ledger, replica string, stop <-chan os.Signal) error {
	mux := http.NewServeMux()
	unless := func(names ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range names {
				if _, err := os.Stat(filepath.Join(ledger, name)); err == nil {
					http.Error(w, name, http.StatusServiceUnavailable)
					return
				}
			}
		}
	}
	mux.HandleFunc("GET /health", unless("sick", "sick-"+replica, "sick-"+os.Getenv("GREETING")))
	mux.HandleFunc("GET /ready", unless("busy-"+replica, "busy-"+os.Getenv("GREETING")))
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{ // the client finds out
			"replica": replica, "node": os.Getenv("HOLDFAST_NODE"), "epoch": os.Getenv("HOLDFAST_EPOCH"), "greeting": os.Getenv("GREETING"),
		})
	})
	l, err := net.Listen("tcp", net.JoinHostPort("", cmp.Or(os.Getenv("ELSEWHERE"), os.Getenv("PORT"))))
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- (&http.Server{Handler: mux, ReadHeaderTimeout: patience}).Serve(l) }()
	var dies <-chan time.Time
	if long, err := time.ParseDuration(os.Getenv("DIES")); err == nil {
		dies = time.After(long)
	}
	select {
	case <-dies:
		return fmt.Errorf("it dies after %s", os.Getenv("DIES"))
	case <-stop:
		fmt.Println("asked to stop")
		return nil
	case err := <-failed:
		return err
	}
}
