package certs

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ServerFiles are a server's files. The zero value is no TLS; with a ClientCA callers need a certificate of
// that authority.
type ServerFiles struct {
	Pair
	ClientCA string
}

// On tells whether the server uses TLS.
func (f ServerFiles) On() bool { return f != ServerFiles{} }

// lookEvery is the shortest pause between two checks of the files: handshakes may be many.
const lookEvery = time.Second

// server keeps the newest valid files.
type server struct {
	files ServerFiles
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	good   *tls.Config
	seen   [3]stamp
	looked time.Time
}

// stamp distinguishes contents of a file.
type stamp struct {
	size int64
	at   time.Time
}

// Server makes the configuration of a listener, nil without TLS. Files that cannot be read now are an error;
// after that, invalid files are logged and the last valid ones stay in use.
func Server(files ServerFiles, now func() time.Time, log *slog.Logger) (*tls.Config, error) {
	if !files.On() {
		return nil, nil //nolint:nilnil // nil means a listener without TLS
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

// current checks the files before it returns the configuration for a connection.
func (s *server) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.look()
	}
	return s.good
}

// look reads files that changed. A pair that is half replaced does not match; look retries when the other half
// has changed.
func (s *server) look() {
	seen := s.files.stamps()
	if seen == s.seen {
		return
	}
	s.seen = seen
	fresh, err := s.read()
	if err != nil {
		s.log.Error("load the new TLS files; the old ones stay in use", "cert", s.files.Cert, "error", err)
		return
	}
	s.good = fresh
	s.log.Info("loaded the new TLS files", "cert", s.files.Cert)
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
