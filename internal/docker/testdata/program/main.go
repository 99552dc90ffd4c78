// Command program is what containers run in tests: it does what its first argument says.
package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	patience   = 5 * time.Second
	piece      = 1 << 20 // bytes
	readable   = 0o644
	longer     = 20_000 // than what an engine takes at once of a line
	moment     = 100 * time.Millisecond
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(exitFailed)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run(what string, args []string) error {
	switch what {
	case "serve": // the files of its directory, until it is asked to stop
		return serve()
	case "stubborn": // does not heed that
		signal.Ignore(syscall.SIGTERM)
		return serve()
	case "print": // a text so often
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString(strings.Repeat(args[1], n)); err != nil {
			return err
		}
		return serve()
	case "tangle": // lines of one output with the parts of a long one of the other
		for range 10 {
			fmt.Fprint(os.Stderr, strings.Repeat("#", longer))
			time.Sleep(moment)
			fmt.Println("a line")
			time.Sleep(moment)
			fmt.Fprintln(os.Stderr, strings.Repeat("#", longer))
		}
		return serve()
	case "exit": // with a code
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		fmt.Println("it ends with", code)
		os.Exit(code)
	case "hoard": // memory, once somebody asks for it
		http.HandleFunc("/hoard", func(http.ResponseWriter, *http.Request) {
			for all := [][]byte{}; ; {
				all = append(all, bytes.Repeat([]byte{1}, piece))
			}
		})
		return serve()
	case "write": // a file
		return os.WriteFile(args[0], []byte(args[1]), readable)
	}
	return fmt.Errorf("%q is nothing that it does", what)
}

func serve() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGTERM) {
		signal.Notify(stop, syscall.SIGTERM)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", os.Getenv("PORT")))
	if err != nil {
		return err
	}
	http.Handle("/", http.FileServer(http.Dir("/holdfast")))
	failed := make(chan error, 1)
	go func() { failed <- (&http.Server{ReadHeaderTimeout: patience}).Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-stop:
		fmt.Println("asked to stop")
		return nil
	}
}
