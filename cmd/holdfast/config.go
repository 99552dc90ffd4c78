package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// What the command line reads from the environment.
const (
	envAddress    = "HOLDFAST_ADDRESS"
	envToken      = "HOLDFAST_TOKEN"
	envConfigFile = "HOLDFAST_CONFIG_FILE"
	envCA         = "HOLDFAST_CA"
	envClientCert = "HOLDFAST_CLIENT_CERT"
	envClientKey  = "HOLDFAST_CLIENT_KEY"
)

// settings are which region to call, and as whom.
type settings struct {
	address, token, project string
	certs                   certs.ClientFiles
}

// settle uses --context, else flags and environment, else the current context. A token stays with its address: a
// context's token and certificates are never sent to another address.
func (c *cli) settle() (settings, error) {
	file, err := c.loadContexts()
	if err != nil {
		return settings{}, err
	}
	name := c.flags.context
	if name == "" {
		name = file.Current
	}
	saved, known := file.Contexts[name]
	if c.flags.context != "" && !known {
		return settings{}, fleet.Errorf(fleet.NotFound, "context %q is not in %s", name, c.contextsPath()).
			WithHint("holdfast context list")
	}
	s := settings{address: c.flags.address, token: c.env(envToken), project: c.flags.project, certs: c.certFiles()}
	if s.address == "" && c.flags.context == "" {
		s.address = c.env(envAddress)
	}
	if s.address == "" {
		s.address = saved.Address
	}
	if s.address == saved.Address && (s.token == "" || c.flags.context != "") {
		s.token = saved.Token
	}
	if s.address == saved.Address {
		s.certs = c.certsOf(saved)
	}
	if s.project == "" {
		s.project = saved.Project
	}
	if s.address == "" {
		return s, fleet.Errorf(fleet.Invalid, "no region given").WithHint(
			"set " + envAddress + " and " + envToken + ", or run: holdfast context set NAME --address URL --token -" +
				" (temporal-dev prints both when it starts)")
	}
	return s, nil
}

// connect makes the client of the configured region.
func (c *cli) connect() (*api.Client, error) {
	s, err := c.settle()
	if err != nil {
		return nil, err
	}
	c.flags.project = s.project
	security, err := c.security(s)
	if err != nil {
		return nil, err
	}
	return api.NewClient(s.address, s.token, api.WithRetryNotice(c.noteRetry), api.WithTLS(security))
}

// certFiles are the files from flags, with omitted ones from the environment.
func (c *cli) certFiles() certs.ClientFiles {
	return firstCerts([]certs.ClientFiles{c.flags.certs, c.envCerts()})
}

func (c *cli) envCerts() certs.ClientFiles {
	return certs.ClientFiles{CA: c.env(envCA), Pair: certs.Pair{Cert: c.env(envClientCert), Key: c.env(envClientKey)}}
}

// firstCerts is the first given authority and the first given pair.
func firstCerts(order []certs.ClientFiles) certs.ClientFiles {
	var out certs.ClientFiles
	for _, f := range order {
		out.CA = first(out.CA, f.CA)
		if out.Pair == (certs.Pair{}) {
			out.Pair = f.Pair
		}
	}
	return out
}

// certsOf are the files for a saved region: flags first; with --context then the saved ones and the environment,
// without it the environment and the saved ones.
func (c *cli) certsOf(saved savedContext) certs.ClientFiles {
	order := []certs.ClientFiles{c.flags.certs, c.envCerts(), saved.certs()}
	if c.flags.context != "" {
		order[1], order[2] = order[2], order[1]
	}
	return firstCerts(order)
}

// security is the TLS setup for calls to the region. The environment may be meant for another region, so only flags
// conflict with a plain-text address.
func (c *cli) security(s settings) (*tls.Config, error) {
	if c.flags.certs == (certs.ClientFiles{}) && !certs.Secure(s.address) {
		s.certs = certs.ClientFiles{}
	}
	return certs.For(s.address, s.certs)
}

// noteRetry explains a delay on stderr; programs read only stdout.
func (c *cli) noteRetry(r api.Retry) {
	if c.flags.output == formatTable {
		if c.picture != nil {
			c.picture.clear()
		}
		fmt.Fprintf(c.stderr, "%s; trying again (%d of %d)\n", clean(api.ProblemOf(r.Err).Detail), r.Attempt+1, r.Of)
	}
}

func (c *cli) contextsPath() string {
	if path := c.env(envConfigFile); path != "" {
		return path
	}
	base := c.env("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(c.env("HOME"), ".config")
	}
	return filepath.Join(base, "holdfast", "contexts.json")
}

// warnOpen warns if other users may read the tokens in a file.
func (c *cli) warnOpen(path string, info os.FileInfo) {
	if info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(c.stderr, "warning: %s contains tokens and is readable by other users: run chmod 600 on it\n", path)
	}
}
