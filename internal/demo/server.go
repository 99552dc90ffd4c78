package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// server is one demo.
type server struct {
	Process
	options  Options
	now      func() time.Time
	began    time.Time
	exits    chan int
	requests atomic.Int64
	inFlight atomic.Int64
	printing sync.Mutex

	mu       sync.Mutex
	failFrom time.Time // the check fails from then on, if it is not zero
	failTo   time.Time // and until then, if it is not zero
}

func newServer(p Process, o Options) *server {
	return &server{Process: p, options: o, now: p.Now, began: p.Now(), exits: make(chan int, 1)}
}

// answer is what / says.
type answer struct {
	Deployment string  `json:"deployment,omitempty"`
	Instance   string  `json:"instance,omitempty"`
	Replica    string  `json:"replica,omitempty"`
	Revision   string  `json:"revision,omitempty"`
	Epoch      string  `json:"epoch,omitempty"`
	Node       string  `json:"node,omitempty"`
	Site       string  `json:"site,omitempty"`
	Config     *config `json:"config,omitempty"`
	Healthy    bool    `json:"healthy"`
	Requests   int64   `json:"requests"`
	InFlight   int64   `json:"inFlight"`
	Seconds    float64 `json:"seconds"` // since its start
}

// config is the configuration as the file has it now.
type config struct {
	Hash    string `json:"hash,omitempty"`
	Bytes   int    `json:"bytes"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.describe)
	mux.HandleFunc("/health", s.health)
	mux.HandleFunc("/fail", s.fail)
	mux.HandleFunc("/recover", s.recover)
	mux.HandleFunc("/delay", s.delay)
	mux.HandleFunc("/burn", s.burn)
	mux.HandleFunc("/exit", s.leave)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.inFlight.Add(1)
		defer s.inFlight.Add(-1)
		began := s.now()
		mux.ServeHTTP(w, r)
		if r.URL.Path != "/health" && !s.options.quiet {
			s.say("%s %q in %.3f s", r.Method, r.URL.RequestURI(), s.now().Sub(began).Seconds())
		}
	})
}

func (s *server) say(format string, args ...any) {
	s.printing.Lock()
	defer s.printing.Unlock()
	_, _ = fmt.Fprintf(s.Stdout, format+"\n", args...)
}

// whoami is the server in a few words.
func (s *server) whoami() string {
	var words []string
	for _, v := range []struct{ word, name string }{
		{"instance", "HOLDFAST_INSTANCE"},
		{"deployment", "HOLDFAST_DEPLOYMENT"},
		{"revision", "HOLDFAST_REVISION"},
		{"replica", "HOLDFAST_REPLICA"},
		{"node", "HOLDFAST_NODE"},
	} {
		if value := s.Env(v.name); value != "" {
			words = append(words, v.word+" "+value)
		}
	}
	if len(words) == 0 {
		return "demo"
	}
	return strings.Join(words, ", ")
}

func (s *server) describe(w http.ResponseWriter, _ *http.Request) {
	a := answer{
		Deployment: s.Env("HOLDFAST_DEPLOYMENT"), Instance: s.Env("HOLDFAST_INSTANCE"), Replica: s.Env("HOLDFAST_REPLICA"),
		Revision: s.Env("HOLDFAST_REVISION"), Epoch: s.Env("HOLDFAST_EPOCH"), Node: s.Env("HOLDFAST_NODE"), Site: s.Env("HOLDFAST_SITE"),
		Config: s.config(), Healthy: s.healthy(), Requests: s.requests.Load(), InFlight: s.inFlight.Load(),
		Seconds: s.now().Sub(s.began).Seconds(),
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // the caller left
}

func (s *server) config() *config {
	path := s.Env("HOLDFAST_CONFIG")
	if path == "" {
		return nil
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the file that the node delivered
	if err != nil {
		return &config{Error: err.Error()}
	}
	sum := sha256.Sum256(raw)
	c := &config{Hash: hex.EncodeToString(sum[:]), Bytes: len(raw)}
	var known struct{ Message string }
	if json.Unmarshal(raw, &known) == nil {
		c.Message = known.Message
	}
	return c
}

func (s *server) healthy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return s.failFrom.IsZero() || now.Before(s.failFrom) || !s.failTo.IsZero() && !now.Before(s.failTo)
}

// failBetween lets the check fail; zero times are never.
func (s *server) failBetween(from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failFrom, s.failTo = from, to
}

func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if !s.healthy() {
		http.Error(w, "unhealthy: /recover lets the check pass again", http.StatusServiceUnavailable)
		return
	}
	write(w, "ok")
}

func (s *server) fail(w http.ResponseWriter, r *http.Request) {
	lasts, ok := duration(w, r.URL.Query(), 0)
	if !ok {
		return
	}
	now, until := s.now(), time.Time{}
	if lasts > 0 {
		until = now.Add(lasts)
	}
	s.failBetween(now, until)
	write(w, "the check fails")
}

func (s *server) recover(w http.ResponseWriter, _ *http.Request) {
	s.failBetween(time.Time{}, time.Time{})
	write(w, "the check passes")
}

func (s *server) delay(w http.ResponseWriter, r *http.Request) {
	if lasts, ok := duration(w, r.URL.Query(), time.Second); ok && pause.For(r.Context(), lasts) == nil {
		write(w, "after "+lasts.String())
	}
}

func (s *server) burn(w http.ResponseWriter, r *http.Request) {
	lasts, ok := duration(w, r.URL.Query(), time.Second)
	if !ok {
		return
	}
	cores, ok := number(w, r.URL.Query(), "cores", 1, 1, runtime.NumCPU())
	if !ok {
		return
	}
	ctx, done := context.WithTimeout(r.Context(), lasts)
	defer done()
	var all sync.WaitGroup
	for range cores {
		all.Go(func() {
			for sum := sha256.Sum256(nil); ctx.Err() == nil; {
				for range 1000 {
					sum = sha256.Sum256(sum[:])
				}
			}
		})
	}
	all.Wait()
	write(w, fmt.Sprintf("%d cores were busy for %s", cores, lasts))
}

func (s *server) leave(w http.ResponseWriter, r *http.Request) {
	code, ok := number(w, r.URL.Query(), "code", exitFailed, 0, 255)
	if !ok {
		return
	}
	write(w, fmt.Sprintf("exits with code %d", code))
	_ = http.NewResponseController(w).Flush() // else the caller only sees the end
	s.exit(code)
}

// exit ends the process; the first code counts.
func (s *server) exit(code int) {
	select {
	case s.exits <- code:
	default:
	}
}

func write(w http.ResponseWriter, text string) { _, _ = fmt.Fprintln(w, text) } //nolint:gosec // plain text

const maxDuration = time.Hour

// duration reads ?for=, a number of seconds or a duration.
func duration(w http.ResponseWriter, q url.Values, otherwise time.Duration) (time.Duration, bool) {
	text := q.Get("for")
	if text == "" {
		return otherwise, true
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		lasts, err = time.ParseDuration(text + "s")
	}
	if err != nil || lasts < 0 || lasts > maxDuration {
		http.Error(w, fmt.Sprintf("invalid for %q: want a duration of at most %s, for example 2s", text, maxDuration), http.StatusBadRequest)
		return 0, false
	}
	return lasts, true
}

func number(w http.ResponseWriter, q url.Values, name string, otherwise, least, most int) (int, bool) {
	text := q.Get(name)
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		http.Error(w, fmt.Sprintf("invalid %s %q: want a number from %d to %d", name, text, least, most), http.StatusBadRequest)
		return 0, false
	}
	return n, true
}
