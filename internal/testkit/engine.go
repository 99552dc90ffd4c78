package testkit

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// maxSaid bounds what is shown of an engine's log, in bytes.
const maxSaid = 4 << 10

// Engine is a real Docker engine of a test, with its own containers and images. It needs what
// Debian's docker.io and iproute2 bring, and root. It ends with the test, however that ends, and so does what
// it runs.
type Engine struct {
	// Host is what DOCKER_HOST says.
	Host string

	dir   string
	guard io.WriteCloser
	did   *bufio.Reader // a line for each that the guard did
	http  *http.Client
}

// engineGuard runs an engine until its standard input ends, and does to it what the lines say that come
// there. It has mounts and a bridge of its own, and leaves nothing behind, also of containers whose engine
// was killed.
const engineGuard = `
dir=$1 flags=$2 bridge=hf$$
mount --make-rprivate /
echo '{}' >"$dir/daemon.json" # not the machine's own
ip link add name $bridge type bridge
ip address add 10.213.$(( $$ % 250 )).1/24 dev $bridge
ip link set dev $bridge up
export HTTP_PROXY=127.0.0.1:9 HTTPS_PROXY=127.0.0.1:9 # no test asks a registry
containerd --root "$dir/root" --state "$dir/state" --address "$dir/containerd" & below=$!
start() { dockerd -H "unix://$dir/sock" --containerd "$dir/containerd" --data-root "$dir/data" --exec-root "$dir/run" -p "$dir/pid" \
  --config-file "$dir/daemon.json" --bridge $bridge --ip-forward=false --storage-driver vfs --iptables=false --ip6tables=false --ip-masq=false $flags & pid=$!; }
start
while read -r word; do
  case $word in
    start) start ;;
    kill) kill -KILL $pid; wait $pid ;;
    *) kill -"$word" $pid ;;
  esac
  echo "$word" >&3
done
kill -CONT $pid && kill -TERM $pid && wait $pid
tasks() { ctr -a "$dir/containerd" -n moby tasks "$@"; }
for one in $(tasks ls -q); do tasks delete --force "$one"; done
kill -TERM $below
wait $below
ip link delete dev $bridge
`

// StartEngine starts an engine, with more flags for it if there are any.
func StartEngine(t testing.TB, flags string) *Engine {
	t.Helper()
	for _, needed := range []string{"dockerd", "docker-init", "containerd", "ctr", "ip"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Fatalf("no %s on this machine: install docker.io and iproute2 with the package manager", needed)
		}
	}
	dir := Dir(t)
	e := &Engine{Host: "unix://" + filepath.Join(dir, "sock"), dir: dir}
	e.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "sock"))
	}}}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatalf("make the engine's log: %v", err)
	}
	cmd := exec.Command("sh", "-c", engineGuard, "guard", dir, flags)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stdout, cmd.Stderr = log, log
	did, says, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	cmd.ExtraFiles, e.did = []*os.File{says}, bufio.NewReader(did)
	if e.guard, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	t.Cleanup(func() {
		_ = e.guard.Close() // it has ended otherwise
		if err := cmd.Wait(); err != nil {
			t.Errorf("the engine ended: %v\n%s", err, e.said())
		}
		_, _, _ = log.Close(), did.Close(), says.Close() // nobody uses them any more
	})
	e.Answers(t)
	return e
}

// Answers waits until the engine does.
func (e *Engine) Answers(t testing.TB) {
	t.Helper()
	over := time.After(startTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := e.ask(http.MethodGet, "/_ping", nil)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("the engine does not answer: %v\n%s", err, e.said())
		}
	}
}

// said is the end of its log.
func (e *Engine) said() []byte {
	said, _ := os.ReadFile(filepath.Join(e.dir, "log")) // nothing if it cannot be read
	return said[max(len(said)-maxSaid, 0):]
}

// Do does one thing to the engine's process: kill, start, or a signal by its name (STOP, CONT).
func (e *Engine) Do(t testing.TB, word string) {
	t.Helper()
	_, err := fmt.Fprintln(e.guard, word)
	if err == nil {
		_, err = e.did.ReadString('\n')
	}
	if err != nil {
		t.Fatalf("%s the engine: %v", word, err)
	}
}

// Image makes an image of one program that needs nothing but itself; changes are lines of a Dockerfile.
func (e *Engine) Image(t testing.TB, name, tag, program string, changes ...string) {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatalf("read the program of an image: %v", err)
	}
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	for _, f := range []struct {
		header tar.Header
		text   []byte
	}{
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: "program", Mode: 0o755, Size: int64(len(text))}, text},
	} {
		if err := files.WriteHeader(&f.header); err != nil {
			t.Fatalf("write an image: %v", err)
		}
		if _, err := files.Write(f.text); err != nil {
			t.Fatalf("write an image: %v", err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatalf("write an image: %v", err)
	}
	query := url.Values{"fromSrc": {"-"}, "repo": {name}, "tag": {tag}, "changes": append(changes, `ENTRYPOINT ["/program"]`)}
	if err := e.ask(http.MethodPost, "/images/create?"+query.Encode(), &layer); err != nil {
		t.Fatalf("make an image: %v", err)
	}
}

// Containers are the names of those that have a label, ended ones too.
func (e *Engine) Containers(t testing.TB, label string) []string {
	t.Helper()
	filter, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		t.Fatalf("ask for containers: %v", err)
	}
	var all []struct{ Names []string }
	e.Read(t, "/containers/json?"+url.Values{"all": {"1"}, "filters": {string(filter)}}.Encode(), &all)
	var names []string
	for _, c := range all {
		for _, name := range c.Names {
			names = append(names, strings.TrimPrefix(name, "/"))
		}
	}
	return names
}

// Read decodes the answer to a GET.
func (e *Engine) Read(t testing.TB, path string, into any) {
	t.Helper()
	said, err := e.answer(http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(said, into)
	}
	if err != nil {
		t.Fatalf("read %s of the engine: %v", path, err)
	}
}

// Run starts a container as any program with access to the engine can.
func (e *Engine) Run(t testing.TB, name, image string, labels map[string]string, args ...string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"Image": image, "Cmd": args, "Labels": labels})
	if err == nil {
		err = e.ask(http.MethodPost, "/containers/create?name="+name, bytes.NewReader(body))
	}
	if err == nil {
		err = e.ask(http.MethodPost, "/containers/"+name+"/start", nil)
	}
	if err != nil {
		t.Fatalf("run container %s: %v", name, err)
	}
}

// Discard removes a container, whatever it does.
func (e *Engine) Discard(t testing.TB, name string) {
	t.Helper()
	if err := e.ask(http.MethodDelete, "/containers/"+name+"?force=1", nil); err != nil {
		t.Fatalf("remove container %s: %v", name, err)
	}
}

func (e *Engine) ask(method, path string, body io.Reader) error {
	_, err := e.answer(method, path, body)
	return err
}

// answer makes one call.
func (e *Engine) answer(method, path string, body io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/images/") {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", resp.Status, said)
	}
	return said, err
}
