package certs

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// toldCaller is what a listener learns of a caller that it refused, or that refused it, and what
// to do about that.
var toldCaller = []struct{ text, hint string }{
	{"first record does not look like a TLS handshake", "the caller speaks in the clear: have it speak TLS"},
	{"client didn't provide a certificate", "the caller shows no certificate: give it --client-cert and --client-key"},
	{"remote error: tls: ", "the caller does not take this certificate: give it the authority by --ca, and an address that the certificate names"},
	{"failed to verify certificate", "the caller's certificate is not by --tls-client-ca, or has expired: give it another"},
}

// sayAgain is the least pause between two lines about the same mistake: callers try again often.
const sayAgain = time.Minute

// listener is the TLS of a gRPC server, which by itself says nothing of who it refused.
type listener struct {
	credentials.TransportCredentials
	door string
	log  *slog.Logger
	now  func() time.Time

	mu   *sync.Mutex
	said map[string]time.Time // by hint
}

// Listener makes a gRPC server's credentials. Callers that it refuses are logged, with what to
// do; door says where.
func Listener(conf *tls.Config, door string, now func() time.Time, log *slog.Logger) credentials.TransportCredentials {
	return &listener{
		TransportCredentials: credentials.NewTLS(conf), door: door, log: log, now: now, mu: &sync.Mutex{}, said: map[string]time.Time{},
	}
}

// ServerHandshake tells of a caller that was refused.
func (l *listener) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := l.TransportCredentials.ServerHandshake(c)
	if err != nil {
		l.tell(c.RemoteAddr(), err)
	}
	return secure, info, err
}

// Clone shares what was said.
func (l *listener) Clone() credentials.TransportCredentials {
	other := *l
	other.TransportCredentials = l.TransportCredentials.Clone()
	return &other
}

func (l *listener) tell(from net.Addr, err error) {
	for _, t := range toldCaller {
		if !strings.Contains(err.Error(), t.text) {
			continue
		}
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
