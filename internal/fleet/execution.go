package fleet

import (
	"net/netip"
	"strings"
	"time"
)

// OperationExecute is a durable execution of a module.
const OperationExecute OperationKind = "execute"

// What a module may be given and give back, in bytes.
const (
	// MaxDirectInput bounds the input of an execution that the caller waits for.
	MaxDirectInput = 1 << 20
	// MaxOutput bounds every output.
	MaxOutput = 1 << 20
	// MaxDurableInput is less: whoever starts one by Temporal has it in the start event (X9).
	MaxDurableInput = 64 << 10
)

// ModuleRef names a module: prefix and name.
type ModuleRef struct {
	Namespace ModuleNamespace
	Name      ModuleName
}

// String is the whole name, for example acme.vision.Detect.
func (m ModuleRef) String() string { return string(m.Namespace) + "." + string(m.Name) }

// ParseModule reads a whole name: what follows the last dot is the module's own.
func ParseModule(field, text string) (ModuleRef, error) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return ModuleRef{}, Errorf(Invalid, "%.80q is no module", text).At(field).
			WithHint("give prefix and name, for example acme.vision.Detect")
	}
	m := ModuleRef{ModuleNamespace(text[:at]), ModuleName(text[at+1:])}
	if !moduleNamespace.MatchString(text[:at]) || !moduleName.MatchString(text[at+1:]) {
		return m, Errorf(Invalid, "%.80q is no module", text).At(field).
			WithHint("give prefix and name, for example acme.vision.Detect")
	}
	return m, nil
}

// ModuleMember is a connection that offers a module.
type ModuleMember struct {
	Connection   ConnectionID
	Provider     ProviderName
	Node         NodeName // "" for a provider that is no node
	Group        GroupID
	Executor     string
	ExecutorTLS  ExecutorTLS
	Caller       netip.Addr // that it registered from; zero where that is not known
	State        ConnectionState
	Drains       bool // it was asked to drain: nothing new is sent there (C68)
	Cordoned     bool // its node is: nothing new is sent there
	Description  string
	InputSchema  string
	OutputSchema string
	Registered   time.Time
}

// Callable says that executions may be sent to it.
func (m ModuleMember) Callable() bool {
	return m.State == ConnectionActive && !m.Drains && !m.Cordoned && m.Executor != ""
}

// Module is what a namespace offers under one name, with those that do; at least one.
type Module struct {
	ModuleRef
	Members []ModuleMember // the newest first
}

// LastOffer is the connection that offered a module last, where none can be called.
type LastOffer struct {
	Provider ProviderName
	State    ConnectionState
	Reason   string // the event that ended it
	Ended    *time.Time
	Drains   bool
	Cordoned bool // its node is
}

// Execution is one thing asked of a module. ID is the same for each try of it, so that a
// provider may know a repeat.
type Execution struct {
	ID     string // 32 hex digits
	Module ModuleRef
	Input  []byte // JSON
}

// ExecutionAnswer is what a module gave back, and who it was.
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
	Failure    string // what the module said
	Connection ConnectionID
}

// The bounds of how long a durable execution may take.
const (
	defaultExecution = 10 * time.Minute
	maxExecution     = time.Hour
)

// ExecutionLimit is the deadline of a durable execution, from the seconds that were asked for.
func ExecutionLimit(seconds int) time.Duration {
	if seconds == 0 {
		return defaultExecution
	}
	return time.Duration(seconds) * time.Second
}

// ValidExecution refuses a durable execution that no region takes.
func ValidExecution(module string, input []byte, seconds int) error {
	if _, err := ParseModule("/module", module); err != nil {
		return err
	}
	if len(input) > MaxDurableInput {
		return Errorf(TooLarge, "the input is longer than %d bytes", MaxDurableInput).At("/input").
			WithHint("give the module an address where it can fetch it")
	}
	if seconds < 0 || time.Duration(seconds)*time.Second > maxExecution {
		return Errorf(Invalid, "%d seconds are no time for an execution", seconds).At("/timeoutSeconds").
			WithHint("allowed are 1 to 3600")
	}
	return nil
}
