package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
)

// The first arguments by which the test binary runs as something that is no test.
const (
	asProgram = "as-program" // the whole of temporal-dev
	asStores  = "as-stores"  // a supervisor with Postgres and Temporal only
	asUser    = "as-user"    // a command as another user
)

const testPatience = time.Minute

// TestMain lets the test binary be its own children, so that the tests need nothing else.
func TestMain(m *testing.M) {
	worker.SetBinaryChecksum("test") // each process would hash this large binary, and the server orders its builds by their own id
	args := os.Args[1:]
	child, isChild := childNamed(args)
	switch {
	case isChild:
		if args[0] == childTemporal { // other people's program, of which the tests start many: less of it is spent on collecting and waking
			debug.SetGCPercent(400)
			runtime.GOMAXPROCS(1)
		}
		os.Exit(runChild(child, os.Stderr))
	case len(args) > 0 && args[0] == asProgram:
		os.Exit(run(args[1:], os.Stdout, os.Stderr))
	case len(args) > 0 && args[0] == asStores:
		os.Exit(exitCode(runStores(args[1]), os.Stderr))
	case len(args) > 0 && args[0] == asUser:
		os.Exit(exitCode(runAsUser(args[1:]), os.Stderr))
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0))) // each has some 20 processes, which have to keep their deadlines
	}
	os.Exit(m.Run())
}

// runStores is a supervisor that stays until it is killed.
func runStores(data string) error {
	l, err := openLaptop(freeOptions(data), output{progress: os.Stdout, trouble: os.Stderr})
	if err != nil {
		return err
	}
	if err := l.startStores(context.Background()); err != nil {
		return err
	}
	fmt.Println("up")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, errors.New("was not killed"))
}

func freeOptions(data string) options {
	return options{data: data, sites: 1, regions: 1, api: "127.0.0.1:0", temporal: "127.0.0.1:0", web: "127.0.0.1:0"}
}

// transcript collects what a region says.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// newLaptop opens a region in a directory; it ends with the test at the latest.
func newLaptop(t *testing.T, data string) (*laptop, *transcript) {
	t.Helper()
	said := &transcript{}
	l, err := openLaptop(freeOptions(data), output{progress: said, trouble: said})
	require.NoError(t, err)
	t.Cleanup(func() { l.stop(); l.dir.close() })
	return l, said
}

// startStores starts Postgres and Temporal.
func startStores(t *testing.T, l *laptop) {
	t.Helper()
	require.NoError(t, l.startStores(t.Context()))
}

func realOnly(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real Postgres and Temporal processes")
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.NoError(t, poll(t.Context(), testPatience, done), what)
}

// alive is false for a zombie too, which has ended but was not waited for.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := bytes.LastIndexByte(stat, ')')
	return after >= 0 && after+2 < len(stat) && stat[after+2] != 'Z'
}

// standStill pauses a process. The signal reaches its threads one after the other: until then it goes on.
func standStill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	eventually(t, "it stands still", func() bool { return !moves(t, pid) })
}

// moves says that a thread of a process was not stopped yet.
func moves(t *testing.T, pid int) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, err := os.ReadFile(path)
		after := bytes.LastIndexByte(stat, ')')
		return err == nil && after+2 < len(stat) && !bytes.ContainsRune([]byte("TZX"), rune(stat[after+2]))
	})
}

// privateDir is a directory below one that only its owner, another user, may enter.
func privateDir(t *testing.T, owner int) string {
	t.Helper()
	closed := filepath.Join(t.TempDir(), "closed")
	data := filepath.Join(closed, "data")
	require.NoError(t, os.MkdirAll(data, 0o755))
	require.NoError(t, os.Chmod(closed, 0o700))
	require.NoError(t, os.Chown(closed, owner, -1))
	return data
}

func listen(t *testing.T) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr)
}

func kill9(t *testing.T, pid int) {
	t.Helper()
	require.NotZero(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
