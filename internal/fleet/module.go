package fleet

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// ModuleNamespace is the owner prefix of module names.
type ModuleNamespace string

// GroupID names the providers that share a module namespace.
type GroupID string

// ProviderName tells apart the providers of one identity.
type ProviderName string

// ModuleName is a module's name without its prefix.
type ModuleName string

// ModuleOffer is a module that a provider offers. Schemas are JSON schemas (2020-12); "" accepts anything.
type ModuleOffer struct {
	Name         ModuleName `json:"name"`
	Description  string     `json:"description,omitempty"`
	InputSchema  string     `json:"inputSchema,omitempty"`
	OutputSchema string     `json:"outputSchema,omitempty"`
}

// ExecutorTLS is how to connect to an executor; the zero value is without TLS.
type ExecutorTLS struct {
	On bool
	// ServerName is the name that its certificate is for; "" is the host of its address.
	ServerName string
}

func (t ExecutorTLS) validate() error {
	if len(t.ServerName) > maxServerName || strings.ContainsFunc(t.ServerName, notInName) || strings.ContainsAny(t.ServerName, ":/@") && net.ParseIP(t.ServerName) == nil {
		return Errorf(Invalid, "invalid server name %.80q", t.ServerName).At("executorTls/serverName").
			WithHint("use a host name or an IP address without a port, as in the certificate")
	}
	return nil
}

// maxServerName is the limit of DNS.
const maxServerName = 253

// Registration is what a provider sends to register.
type Registration struct {
	// Identity is the proven identity: "node:NAME" or "token:ID".
	Identity string
	Node     NodeName // "" if the provider is not a node
	// Key is the node's public signing key that proved it, in base64. The connection ends when that key does.
	Key string
	// PeerAddress is where a paired node accepts vote requests of its peer: host:port.
	PeerAddress string
	// Facts are about the node's machine; zero runs no replicas.
	Facts       NodeFacts
	Provider    ProviderName
	Namespace   ModuleNamespace
	Group       GroupID
	Executor    string
	ExecutorTLS ExecutorTLS
	// Caller is the address it registers from; zero if unknown.
	Caller   netip.Addr
	Protocol uint32
	Modules  []ModuleOffer
}

var (
	moduleName      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,62}$`)
	moduleNamespace = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}(\.[a-z][a-z0-9]{0,31}){0,3}$`)
)

// reservedNamespaces cannot be claimed, nor anything below them (C77).
var reservedNamespaces = []ModuleNamespace{"stdlib", "holdfast"}

// Validate rejects what no region accepts (C78); the modules are checked one by one.
func (r Registration) Validate() error {
	if err := ValidateName("provider", string(r.Provider)); err != nil {
		return err
	}
	if r.Group != "" {
		if err := ValidateName("groupId", string(r.Group)); err != nil {
			return err
		}
	}
	if r.PeerAddress != "" {
		if err := validateAddress("peerAddress", r.PeerAddress); err != nil {
			return err
		}
	}
	if err := r.Facts.Validate(); err != nil {
		return err
	}
	if r.Namespace == "" {
		return r.withoutModules()
	}
	if err := r.Namespace.Validate(); err != nil {
		return err
	}
	if err := r.ExecutorTLS.validate(); err != nil {
		return err
	}
	return validateAddress("executorAddress", r.Executor)
}

func (r Registration) withoutModules() error {
	if len(r.Modules) > 0 || r.Group != "" {
		return Errorf(Invalid, "modules and groups need a module namespace").At("moduleNamespace").
			WithHint("give the prefix of the modules' names")
	}
	return nil
}

// Validate rejects invalid and reserved namespaces.
func (n ModuleNamespace) Validate() error {
	if !moduleNamespace.MatchString(string(n)) {
		return Errorf(Invalid, "invalid module namespace %.80q", n).At("moduleNamespace").
			WithHint("use one to four words of a-z and 0-9, joined by dots, for example acme.vision")
	}
	for _, reserved := range reservedNamespaces {
		if n == reserved || strings.HasPrefix(string(n), string(reserved)+".") {
			return Errorf(Denied, "the module namespace %s is reserved", reserved).At("moduleNamespace")
		}
	}
	return nil
}

// Validate rejects invalid module names.
func (n ModuleName) Validate() error {
	if moduleName.MatchString(string(n)) {
		return nil
	}
	return Errorf(Invalid, "invalid module name %.80q", n).At("modules").
		WithHint("use a letter, then up to 62 letters, digits and '_'")
}

// notInName reports whether a rune is invalid in a host name.
func notInName(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func validateAddress(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	if err == nil && host != "" && !strings.ContainsAny(host, "/@") && !strings.ContainsFunc(host, notInName) && notNumber == nil && number > 0 {
		return nil
	}
	return Errorf(Invalid, "invalid address %.80q", address).At(field).
		WithHint("use host:port without a scheme, for example 10.0.0.7:9091")
}
