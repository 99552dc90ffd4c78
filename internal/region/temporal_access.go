package region

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// TemporalAccess is how to connect to Temporal, and as whom; the zero value uses no TLS.
type TemporalAccess struct {
	TLS bool
	// Files are what to trust instead of the system's authorities, and the client certificate.
	Files certs.ClientFiles
	// ServerName is the name in Temporal's certificate; "" is the host of its address.
	ServerName string
	// APIKeyFile contains the key sent with each call; "" sends none.
	APIKeyFile string
}

// given are the flags given besides --temporal-tls itself.
func (a TemporalAccess) given() []string {
	var out []string
	for _, f := range []struct{ flag, value string }{
		{"--temporal-tls-ca", a.Files.CA},
		{"--temporal-tls-cert", a.Files.Cert},
		{"--temporal-tls-key", a.Files.Key},
		{"--temporal-tls-server-name", a.ServerName},
		{"--temporal-api-key-file", a.APIKeyFile},
	} {
		if f.value != "" {
			out = append(out, f.flag)
		}
	}
	return out
}

// check rejects settings that would be ignored or sent without TLS.
func (a TemporalAccess) check() error {
	given := a.given()
	if a.TLS || len(given) == 0 {
		return nil
	}
	what := strings.Join(given, ", ")
	why := "the connection to Temporal does not use TLS"
	if slices.Contains(given, "--temporal-api-key-file") {
		why += ", and a key is sent only over TLS"
	}
	return fleet.Errorf(fleet.Invalid, "%s: %s", what, why).At("tls").WithHint("give --temporal-tls as well, or omit " + what)
}

// temporalAccess is TemporalAccess with its files read.
type temporalAccess struct {
	tls         *tls.Config        // nil in the clear
	credentials client.Credentials // nil without a key
}

func (a TemporalAccess) open(now func() time.Time, log *slog.Logger) (out temporalAccess, err error) {
	if err := a.check(); err != nil || !a.TLS {
		return out, err
	}
	if out.tls, err = certs.Temporal(a.Files, a.ServerName); err != nil || a.APIKeyFile == "" {
		return out, err
	}
	key, err := openAPIKey(a.APIKeyFile, now, log)
	if err != nil {
		return out, err
	}
	out.credentials = client.NewAPIKeyDynamicCredentials(key.current)
	return out, nil
}

// unreached gives the error of a first call to Temporal its kind: a server that is refused for good ends, instead
// of waiting for another configuration.
func (c ServerConfig) unreached(err error) error {
	if err == nil || errors.As(err, new(*fleet.Error)) {
		return err
	}
	hint := "Temporal requires authentication: give --temporal-api-key-file, or --temporal-tls-cert and --temporal-tls-key"
	if c.Temporal.APIKeyFile != "" {
		hint = "check that the key in --temporal-api-key-file is valid and may write to the namespace " + c.TemporalNamespace
	}
	switch serviceerror.ToStatus(err).Code() { //nolint:exhaustive // the rest is not about authentication
	case codes.Unauthenticated:
		return fleet.Errorf(fleet.Unauthenticated, "Temporal at %s refuses this server: %w", c.TemporalAddress, err).WithHint(hint)
	case codes.PermissionDenied:
		return fleet.Errorf(fleet.Denied, "Temporal at %s refuses this server: %w", c.TemporalAddress, err).WithHint(hint)
	}
	if c.Temporal.TLS {
		return certs.TemporalTLSError(c.TemporalAddress, err)
	}
	return certs.TemporalError(c.TemporalAddress, err)
}
