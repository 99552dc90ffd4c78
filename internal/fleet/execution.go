package fleet

import (
	"net/netip"
	"strings"
	"time"
)

// OperationExecute is a durable execution of a module.
const OperationExecute OperationKind = "execute"

// Limits of what a module gets and returns, in bytes.
const (
	// MaxDirectInput limits the input of an execution that the caller waits for.
	MaxDirectInput = 1 << 20
	// MaxOutput limits every output.
	MaxOutput = 1 << 20
	// MaxDurableInput is lower: a caller that starts one by Temporal has the input in the start event (X9).
	MaxDurableInput = 64 << 10
)

// ModuleRef names a module: prefix and name.
type ModuleRef struct {
	Namespace ModuleNamespace
	Name      ModuleName
}

// String is the whole name, for example acme.vision.Detect.
func (m ModuleRef) String() string { return string(m.Namespace) + "." + string(m.Name) }

// ParseModule parses a whole name: the part after the last dot is the module's own name.
func ParseModule(field, text string) (ModuleRef, error) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return ModuleRef{}, Errorf(Invalid, "invalid module name %.80q", text).At(field).
			WithHint("give prefix and name, for example acme.vision.Detect")
	}
	m := ModuleRef{ModuleNamespace(text[:at]), ModuleName(text[at+1:])}
	if !moduleNamespace.MatchString(text[:at]) || !moduleName.MatchString(text[at+1:]) {
		return m, Errorf(Invalid, "invalid module name %.80q", text).At(field).
			WithHint("give prefix and name, for example acme.vision.Detect")
	}
	return m, nil
}

// ModuleMember is a connection that offers a module.
type ModuleMember struct {
	Connection   ConnectionID
	Provider     ProviderName
	Node         NodeName // "" if the provider is not a node
	Group        GroupID
	Executor     string
	ExecutorTLS  ExecutorTLS
	Caller       netip.Addr // address it registered from; zero if unknown
	State        ConnectionState
	Drains       bool // it was asked to drain and gets no new work (C68)
	Cordoned     bool // its node is cordoned, and it gets no new work
	Description  string
	InputSchema  string
	OutputSchema string
	Registered   time.Time
}

// Callable reports whether executions may be sent to it.
func (m ModuleMember) Callable() bool {
	return m.State == ConnectionActive && !m.Drains && !m.Cordoned && m.Executor != ""
}

// Module is what a namespace offers under one name, with the providers that offer it; at least one.
type Module struct {
	ModuleRef
	Members []ModuleMember // the newest first
}

// LastOffer is the connection that last offered a module, when none can be called.
type LastOffer struct {
	Provider ProviderName
	State    ConnectionState
	Reason   string // the event that ended it
	Ended    *time.Time
	Drains   bool
	Cordoned bool // its node is
}

// Execution is one call of a module. ID is the same for each attempt, so that a provider can detect a repeat.
type Execution struct {
	ID     string // 32 hex digits
	Module ModuleRef
	Input  []byte // JSON
}

// ExecutionAnswer is a module's output, and the connection that gave it.
type ExecutionAnswer struct {
	Output     []byte
	Connection ConnectionID
}

// ExecutionEnd is how a durable execution ended. Output and Failure stay in the region's
// database; Reason is a stable word.
type ExecutionEnd struct {
	Operation  OperationID
	State      OperationState
	Reason     string
	Message    string
	Output     []byte
	Failure    string // the module's own error
	Connection ConnectionID
}

// Limits of the time of a durable execution.
const (
	defaultExecution = 10 * time.Minute
	maxExecution     = time.Hour
)

// ExecutionLimit is the time limit of a durable execution, from the requested seconds.
func ExecutionLimit(seconds int) time.Duration {
	if seconds == 0 {
		return defaultExecution
	}
	return time.Duration(seconds) * time.Second
}

// ValidExecution rejects a durable execution that no region accepts.
func ValidExecution(module string, input []byte, seconds int) error {
	if _, err := ParseModule("/module", module); err != nil {
		return err
	}
	if len(input) > MaxDurableInput {
		return Errorf(TooLarge, "the input exceeds %d bytes", MaxDurableInput).At("/input").
			WithHint("pass an address from which the module can fetch it")
	}
	if seconds < 0 || time.Duration(seconds)*time.Second > maxExecution {
		return Errorf(Invalid, "invalid timeout %d", seconds).At("/timeoutSeconds").
			WithHint("use 1 to 3600 seconds")
	}
	return nil
}
