package fleet

import "time"

// ConnectionID names one registration of a provider: 32 hex digits, never used again.
type ConnectionID string

// ConnectionState is where a connection stands.
type ConnectionState string

// A connection is Registered, Active or Draining, and then Disconnected for good.
const (
	ConnectionRegistered   ConnectionState = "Registered"   // it waits for its stream
	ConnectionActive       ConnectionState = "Active"       // its stream is open, work is sent to it
	ConnectionDraining     ConnectionState = "Draining"     // it finishes what it has
	ConnectionDisconnected ConnectionState = "Disconnected" // terminal
)

// ConnectionStates lists them; the SQL CHECK is compared with it.
func ConnectionStates() []ConnectionState {
	return []ConnectionState{ConnectionRegistered, ConnectionActive, ConnectionDraining, ConnectionDisconnected}
}

// Live says that the connection has not ended.
func (s ConnectionState) Live() bool { return s != ConnectionDisconnected }

// ConnectionEvent moves a connection. Those that end one are the reasons that people see.
type ConnectionEvent string

// What happens to connections.
const (
	StreamOpened    ConnectionEvent = "stream_opened"
	DrainAcked      ConnectionEvent = "drain_acked"
	StreamRequired  ConnectionEvent = "stream_required"  // none was opened in time
	HeartbeatLapsed ConnectionEvent = "heartbeat_lapsed" // crash, partition or a long pause
	StreamFailed    ConnectionEvent = "stream_failed"    // transport error
	StreamClosed    ConnectionEvent = "stream_closed"    // the provider closed it: its work is done
	DrainDeadline   ConnectionEvent = "drain_deadline"   // its work was not done in time
	Deregistered    ConnectionEvent = "deregistered"     // the provider asked for it
	Replaced        ConnectionEvent = "replaced"         // the same identity registered anew
	Revoked         ConnectionEvent = "revoked"          // its key or token was taken back
	ServerLapsed    ConnectionEvent = "server_lapsed"    // the server that held its stream is gone
)

// ConnectionEvents lists them.
func ConnectionEvents() []ConnectionEvent {
	return []ConnectionEvent{
		StreamOpened, DrainAcked, StreamRequired, HeartbeatLapsed, StreamFailed, StreamClosed,
		DrainDeadline, Deregistered, Replaced, Revoked, ServerLapsed,
	}
}

// connectionMachine has every arrow of a connection (C4 to C14). A lapsed heartbeat does not
// end one that drains: its deadline does (C36, C66). A drain whose ack never comes ends at
// its deadline too (C67).
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

// Next is the only way to move a connection; an arrow that is not there is illegal_state.
func (s ConnectionState) Next(on ConnectionEvent) (ConnectionState, error) {
	if to, ok := connectionMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a connection that is %s has no arrow for %s", s, on)
}

// Leaves lists the states that an event moves a connection out of.
func (on ConnectionEvent) Leaves() []ConnectionState { return connectionMachine.from(on) }

// LinkTiming are the terms of the link.
type LinkTiming struct {
	// HeartbeatEvery is at most a third of HeartbeatTimeout (C70).
	HeartbeatEvery, HeartbeatTimeout time.Duration
	// StreamRequired is how long a registration waits for its stream (C53).
	StreamRequired time.Duration
	// Report is how often a provider is told which of its modules are active (C54).
	Report time.Duration
	// DrainAck is how long an ack of a drain may take before it is asked for again (C67).
	DrainAck time.Duration
	// Idle is how long a node goes on asking for tasks after the last one, or after a wake; 0 has
	// nodes ask all the time.
	Idle time.Duration
}

// DefaultLinkTiming are the defaults of C52 to C54, C70 and C84.
func DefaultLinkTiming() LinkTiming {
	return LinkTiming{
		HeartbeatEvery: 5 * time.Second, HeartbeatTimeout: 15 * time.Second,
		StreamRequired: 30 * time.Second, Report: 30 * time.Second, DrainAck: 5 * time.Second, Idle: 30 * time.Second,
	}
}

// IdleLeast is the least that nodes may be told to go on asking for tasks: a task has to arrive
// within it, at a busy region too.
const IdleLeast = time.Second

// Validate wants heartbeats thrice within their timeout.
func (t LinkTiming) Validate() error {
	if t.Idle != 0 && t.Idle < IdleLeast {
		return Errorf(Invalid, "nodes that idle after %s", t.Idle).At("link-idle").WithHint("give at least 1s, or 0 for never")
	}
	for _, term := range []struct {
		flag string
		d    time.Duration
	}{{"link-stream-timeout", t.StreamRequired}, {"link-report", t.Report}, {"link-drain-ack", t.DrainAck}} {
		if term.d <= 0 {
			return Errorf(Invalid, "%s of %s", term.flag, term.d).At(term.flag).WithHint("give more than 0s")
		}
	}
	if t.HeartbeatEvery <= 0 || 3*t.HeartbeatEvery > t.HeartbeatTimeout {
		return Errorf(Invalid, "a heartbeat every %s with a timeout of %s", t.HeartbeatEvery, t.HeartbeatTimeout).At("link-heartbeat").
			WithHint("the timeout is at least three heartbeats")
	}
	return nil
}
