package certs

import (
	"crypto/tls"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/internal/audit"
)

// toldCaller are the errors of refused handshakes, on either side, with a text and a hint.
var toldCaller = []struct{ text, what, hint string }{
	{"first record does not look like a TLS handshake", "it does not use TLS", "the caller does not use TLS: configure it to use TLS"},
	{"client sent an HTTP request to an HTTPS server", "it does not use TLS", "the caller does not use TLS: configure it to use TLS"},
	{"client didn't provide a certificate", "it sends no certificate", "the caller sends no certificate: start it with --client-cert and --client-key"},
	{"remote error: tls: ", "it rejects this certificate", "the caller rejects this certificate: give it the authority with --ca, and an address that the certificate names"},
	{"failed to verify certificate", "its certificate is not of this authority, or has expired", "the caller's certificate is not of --tls-client-ca, or has expired: give it another"},
}

// sayAgain is the shortest pause between two log lines about the same mistake: callers retry often.
const sayAgain = time.Minute

// listener is the TLS of a gRPC server, which by itself logs no refused caller.
type listener struct {
	credentials.TransportCredentials
	door string
	log  *slog.Logger
	now  func() time.Time
	told func(audit.Refusal)

	mu   *sync.Mutex
	said map[string]time.Time // by hint
}

// Listener makes the credentials of a gRPC server. It logs callers that it refuses, with a hint, and calls told
// for each; door names the listener.
func Listener(conf *tls.Config, door string, now func() time.Time, log *slog.Logger, told func(audit.Refusal)) credentials.TransportCredentials {
	return &listener{
		TransportCredentials: credentials.NewTLS(conf), door: door, log: log, now: now, told: told, mu: &sync.Mutex{}, said: map[string]time.Time{},
	}
}

// ServerHandshake reports a refused caller.
func (l *listener) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := l.TransportCredentials.ServerHandshake(c)
	if err != nil {
		l.tell(c.RemoteAddr(), err)
	}
	return secure, info, err
}

// Clone shares the record of log lines.
func (l *listener) Clone() credentials.TransportCredentials {
	other := *l
	other.TransportCredentials = l.TransportCredentials.Clone()
	return &other
}

// host is an address without its port, which differs with each call.
func host(from string) string {
	name, _, err := net.SplitHostPort(from)
	if err != nil {
		return from
	}
	return name
}

func (l *listener) tell(from net.Addr, err error) {
	for _, t := range toldCaller {
		if !strings.Contains(err.Error(), t.text) {
			continue
		}
		l.told(audit.Refusal{Door: l.door, Reason: audit.TLS, What: t.what + ", from " + host(from.String())})
		l.mu.Lock()
		again := l.now().Sub(l.said[t.hint]) >= sayAgain
		if again {
			l.said[t.hint] = l.now()
		}
		l.mu.Unlock()
		if again {
			l.log.Warn("refused", "door", l.door, "reason", "tls", "from", from.String(), "err", err, "hint", t.hint)
		}
		return
	}
	l.log.Debug("a connection ended before it was secure", "door", l.door, "from", from.String(), "err", err) // a probe of the port
}

// handshakeFailed is the start of net/http's line about a refused caller.
const handshakeFailed = "http: TLS handshake error from "

// ErrorLog is the log of an HTTP server, which reports refused callers there.
func ErrorLog(door string, log *slog.Logger, told func(audit.Refusal)) *stdlog.Logger {
	lines := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return stdlog.New(errorLog{lines.Writer(), door, told}, "", 0)
}

type errorLog struct {
	io.Writer
	door string
	told func(audit.Refusal)
}

func (e errorLog) Write(line []byte) (int, error) {
	n, err := e.Writer.Write(line)
	rest, refused := strings.CutPrefix(string(line), handshakeFailed)
	from, why, _ := strings.Cut(rest, ": ")
	for _, t := range toldCaller {
		if refused && strings.Contains(why, t.text) {
			e.told(audit.Refusal{Door: e.door, Reason: audit.TLS, What: t.what + ", from " + host(from)})
			break
		}
	}
	return n, err
}
