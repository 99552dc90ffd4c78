package certs

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ServerFiles are a server's. The zero value is no TLS; with a ClientCA callers have to show
// a certificate by it.
type ServerFiles struct {
	Pair
	ClientCA string
}

// On says whether the server speaks TLS.
func (f ServerFiles) On() bool { return f != ServerFiles{} }

// lookEvery is how often files are looked at, at most: handshakes may be many.
const lookEvery = time.Second

// server keeps the newest files that were good.
type server struct {
	files ServerFiles
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	good   *tls.Config
	seen   [3]stamp
	looked time.Time
}

// stamp tells one content of a file from another.
type stamp struct {
	size int64
	at   time.Time
}

// Server makes the configuration of a listener, nil without TLS. Files that cannot be read
// now are an error; later ones leave the last good ones in use, and are logged.
func Server(files ServerFiles, now func() time.Time, log *slog.Logger) (*tls.Config, error) {
	if !files.On() {
		return nil, nil //nolint:nilnil // nil is what a listener without TLS has
	}
	if err := files.check("--tls-cert", "--tls-key"); err != nil {
		return nil, err
	}
	s := &server{files: files, log: log, now: now, seen: files.stamps(), looked: now()}
	var err error
	if s.good, err = s.read(); err != nil {
		return nil, err
	}
	out := s.good.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil }
	return out, nil
}

func (s *server) read() (*tls.Config, error) {
	pair, err := s.files.load()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"h2", "http/1.1"}}
	if s.files.ClientCA != "" {
		if c.ClientCAs, err = pool("--tls-client-ca", s.files.ClientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// current looks at the files before it gives the configuration of a connection.
func (s *server) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.look()
	}
	return s.good
}

// look reads files that changed. A pair that is half replaced does not match: it is tried
// again when the other half comes.
func (s *server) look() {
	seen := s.files.stamps()
	if seen == s.seen {
		return
	}
	s.seen = seen
	fresh, err := s.read()
	if err != nil {
		s.log.Error("the new TLS files are not used", "cert", s.files.Cert, "error", err)
		return
	}
	s.good = fresh
	s.log.Info("the new TLS files are used", "cert", s.files.Cert)
}

func (f ServerFiles) stamps() [3]stamp {
	var out [3]stamp
	for i, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			out[i] = stamp{info.Size(), info.ModTime()}
		}
	}
	return out
}
