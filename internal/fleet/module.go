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

// ProviderName says which provider of its identity one is.
type ProviderName string

// ModuleName is a module's, without its prefix.
type ModuleName string

// ModuleOffer is one module that a provider offers. Schemas are JSON schemas (2020-12), ""
// takes anything.
type ModuleOffer struct {
	Name         ModuleName `json:"name"`
	Description  string     `json:"description,omitempty"`
	InputSchema  string     `json:"inputSchema,omitempty"`
	OutputSchema string     `json:"outputSchema,omitempty"`
}

// ExecutorTLS says how an executor is spoken to; the zero value is in the clear.
type ExecutorTLS struct {
	On bool
	// ServerName is the name that its certificate is for; "" is the host of its address.
	ServerName string
}

func (t ExecutorTLS) validate() error {
	if len(t.ServerName) > maxServerName || strings.ContainsFunc(t.ServerName, notInName) || strings.ContainsAny(t.ServerName, ":/@") && net.ParseIP(t.ServerName) == nil {
		return Errorf(Invalid, "%.80q is no name of a server", t.ServerName).At("executorTls/serverName").
			WithHint("a host name or an IP address without a port, as it is in the certificate")
	}
	return nil
}

// maxServerName is what DNS allows.
const maxServerName = 253

// Registration is what a provider says when it registers.
type Registration struct {
	// Identity is who has proven to register: "node:NAME" or "token:ID".
	Identity string
	Node     NodeName // "" for a provider that is no node
	// Key is the node's public signing key that proved it, in base64: the connection ends with it.
	Key string
	// PeerAddress is where the node of a pair takes votes for its peer: host:port.
	PeerAddress string
	// Facts are what a node tells of its machine; zero runs no replicas.
	Facts       NodeFacts
	Provider    ProviderName
	Namespace   ModuleNamespace
	Group       GroupID
	Executor    string
	ExecutorTLS ExecutorTLS
	// Caller is the address that it registers from; zero where that is not known.
	Caller   netip.Addr
	Protocol uint32
	Modules  []ModuleOffer
}

var (
	moduleName      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,62}$`)
	moduleNamespace = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}(\.[a-z][a-z0-9]{0,31}){0,3}$`)
)

// reservedNamespaces nobody may claim, nor what lies below them (C77).
var reservedNamespaces = []ModuleNamespace{"stdlib", "holdfast"}

// Validate refuses what no region takes (C78); the modules are judged one by one.
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
		return Errorf(Invalid, "modules or a group without a module namespace").At("moduleNamespace").
			WithHint("give the prefix that the modules' names begin with")
	}
	return nil
}

// Validate refuses what is no prefix, and what is reserved.
func (n ModuleNamespace) Validate() error {
	if !moduleNamespace.MatchString(string(n)) {
		return Errorf(Invalid, "%.80q is not a module namespace", n).At("moduleNamespace").
			WithHint("one to four words of a-z and 0-9, joined by dots, for example acme.vision")
	}
	for _, reserved := range reservedNamespaces {
		if n == reserved || strings.HasPrefix(string(n), string(reserved)+".") {
			return Errorf(Denied, "the module namespace %s is reserved", reserved).At("moduleNamespace")
		}
	}
	return nil
}

// Validate refuses what is no module name.
func (n ModuleName) Validate() error {
	if moduleName.MatchString(string(n)) {
		return nil
	}
	return Errorf(Invalid, "%.80q is not a module name", n).At("modules").
		WithHint("a letter, then up to 62 letters, digits and '_'")
}

// notInName is what stands in no name of a host.
func notInName(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func validateAddress(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	if err == nil && host != "" && !strings.ContainsAny(host, "/@") && !strings.ContainsFunc(host, notInName) && notNumber == nil && number > 0 {
		return nil
	}
	return Errorf(Invalid, "%.80q is not an address", address).At(field).
		WithHint("host:port without a scheme, for example 10.0.0.7:9091")
}
