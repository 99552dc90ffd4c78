package fleet

import "time"

// ConnectionID identifies one registration of a provider: 32 hex digits, never reused.
type ConnectionID string

// ConnectionState is the state of a connection.
type ConnectionState string

// A connection is Registered, Active or Draining, and then Disconnected for good.
const (
	ConnectionRegistered   ConnectionState = "Registered"   // waiting for its stream
	ConnectionActive       ConnectionState = "Active"       // its stream is open, and it gets work
	ConnectionDraining     ConnectionState = "Draining"     // it finishes its work
	ConnectionDisconnected ConnectionState = "Disconnected" // terminal
)

// ConnectionStates lists all states; a test compares it with the SQL CHECK.
func ConnectionStates() []ConnectionState {
	return []ConnectionState{ConnectionRegistered, ConnectionActive, ConnectionDraining, ConnectionDisconnected}
}

// Live reports whether the connection has not ended.
func (s ConnectionState) Live() bool { return s != ConnectionDisconnected }

// ConnectionEvent moves a connection. Events that end one are the reasons shown to people.
type ConnectionEvent string

// The events of a connection.
const (
	StreamOpened    ConnectionEvent = "stream_opened"
	DrainAcked      ConnectionEvent = "drain_acked"
	StreamRequired  ConnectionEvent = "stream_required"  // no stream was opened in time
	HeartbeatLapsed ConnectionEvent = "heartbeat_lapsed" // crash, partition or a long pause
	StreamFailed    ConnectionEvent = "stream_failed"    // transport error
	StreamClosed    ConnectionEvent = "stream_closed"    // the provider closed it after finishing its work
	DrainDeadline   ConnectionEvent = "drain_deadline"   // its work was not done in time
	Deregistered    ConnectionEvent = "deregistered"     // the provider deregistered
	Replaced        ConnectionEvent = "replaced"         // the same identity registered anew
	Revoked         ConnectionEvent = "revoked"          // its key or token was revoked
	ServerLapsed    ConnectionEvent = "server_lapsed"    // the server that held its stream is gone
)

// ConnectionEvents lists them.
func ConnectionEvents() []ConnectionEvent {
	return []ConnectionEvent{
		StreamOpened, DrainAcked, StreamRequired, HeartbeatLapsed, StreamFailed, StreamClosed,
		DrainDeadline, Deregistered, Replaced, Revoked, ServerLapsed,
	}
}

// connectionMachine has every transition of a connection (C4 to C14). A lapsed heartbeat does not end a draining
// connection: its deadline does (C36, C66). A drain that is never acknowledged ends at its deadline too (C67).
var connectionMachine = machine[ConnectionState, ConnectionEvent]{
	{ConnectionRegistered, StreamOpened, ConnectionActive},
	{ConnectionRegistered, StreamRequired, ConnectionDisconnected},
	{ConnectionRegistered, StreamFailed, ConnectionDisconnected},
	{ConnectionRegistered, Deregistered, ConnectionDisconnected},
	{ConnectionRegistered, Replaced, ConnectionDisconnected},
	{ConnectionRegistered, Revoked, ConnectionDisconnected},
	{ConnectionRegistered, ServerLapsed, ConnectionDisconnected},
	{ConnectionActive, DrainAcked, ConnectionDraining},
	{ConnectionActive, HeartbeatLapsed, ConnectionDisconnected},
	{ConnectionActive, StreamFailed, ConnectionDisconnected},
	{ConnectionActive, StreamClosed, ConnectionDisconnected},
	{ConnectionActive, DrainDeadline, ConnectionDisconnected},
	{ConnectionActive, Deregistered, ConnectionDisconnected},
	{ConnectionActive, Replaced, ConnectionDisconnected},
	{ConnectionActive, Revoked, ConnectionDisconnected},
	{ConnectionActive, ServerLapsed, ConnectionDisconnected},
	{ConnectionDraining, StreamFailed, ConnectionDisconnected},
	{ConnectionDraining, StreamClosed, ConnectionDisconnected},
	{ConnectionDraining, DrainDeadline, ConnectionDisconnected},
	{ConnectionDraining, Deregistered, ConnectionDisconnected},
	{ConnectionDraining, Replaced, ConnectionDisconnected},
	{ConnectionDraining, Revoked, ConnectionDisconnected},
	{ConnectionDraining, ServerLapsed, ConnectionDisconnected},
}

// Next is the only way to move a connection; a missing transition is illegal_state.
func (s ConnectionState) Next(on ConnectionEvent) (ConnectionState, error) {
	if to, ok := connectionMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a connection in state %s does not allow %s", s, on)
}

// Leaves lists the states from which an event moves a connection.
func (on ConnectionEvent) Leaves() []ConnectionState { return connectionMachine.from(on) }

// LinkTiming are the time limits of the link.
type LinkTiming struct {
	// HeartbeatEvery is at most a third of HeartbeatTimeout (C70).
	HeartbeatEvery, HeartbeatTimeout time.Duration
	// StreamRequired is how long a registration waits for its stream (C53).
	StreamRequired time.Duration
	// Report is how often a provider is sent the list of its active modules (C54).
	Report time.Duration
	// DrainAck is how long a node may take to acknowledge a drain before it is asked again (C67).
	DrainAck time.Duration
	// Idle is how long a node keeps polling for tasks after the last task or wake; 0 makes nodes poll all the time.
	Idle time.Duration
}

// DefaultLinkTiming are the defaults of C52 to C54, C70 and C84.
func DefaultLinkTiming() LinkTiming {
	return LinkTiming{
		HeartbeatEvery: 5 * time.Second, HeartbeatTimeout: 15 * time.Second,
		StreamRequired: 30 * time.Second, Report: 30 * time.Second, DrainAck: 5 * time.Second, Idle: 30 * time.Second,
	}
}

// IdleLeast is the shortest Idle: a task has to arrive within it, also in a busy region.
const IdleLeast = time.Second

// Validate requires at least three heartbeats per timeout.
func (t LinkTiming) Validate() error {
	if t.Idle != 0 && t.Idle < IdleLeast {
		return Errorf(Invalid, "invalid idle time %s", t.Idle).At("link-idle").WithHint("give at least 1s, or 0 for never")
	}
	for _, term := range []struct {
		flag string
		d    time.Duration
	}{{"link-stream-timeout", t.StreamRequired}, {"link-report", t.Report}, {"link-drain-ack", t.DrainAck}} {
		if term.d <= 0 {
			return Errorf(Invalid, "invalid %s %s", term.flag, term.d).At(term.flag).WithHint("give more than 0s")
		}
	}
	if t.HeartbeatEvery <= 0 || 3*t.HeartbeatEvery > t.HeartbeatTimeout {
		return Errorf(Invalid, "heartbeat interval %s is too long for timeout %s", t.HeartbeatEvery, t.HeartbeatTimeout).At("link-heartbeat").
			WithHint("use an interval of at most a third of the timeout")
	}
	return nil
}
