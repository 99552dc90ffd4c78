package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// Defaults of Options.
const (
	DefaultHeartbeatInterval    = 5 * time.Second
	DefaultHeartbeatTimeout     = 15 * time.Second
	DefaultMaxReconnectAttempts = 10
	defaultCallTimeout          = 10 * time.Second
	defaultExecutorPort         = "9091"
)

// Options configure an InstanceConnection. Address, Name and Token are required.
type Options struct {
	// Address of the region's link, host:port, or a gRPC target of several (scheme:///…), any of which works.
	Address string
	// Name distinguishes the providers of one identity: a DNS label.
	Name string
	// Token is called before every call, so that it can be signed each time.
	Token func(ctx context.Context) (string, error)
	// TLS is used unless Insecure is set; nil means the system's certificates.
	TLS      *tls.Config
	Insecure bool

	// ModuleNamespace is the prefix of the modules' names, Group is common to providers that share it,
	// ExecutorAddress is where the region calls the Executor. A provider without modules leaves all three empty.
	// The default port of an address is 9091.
	ModuleNamespace, Group, ExecutorAddress string
	// Executor has the modules.
	Executor *Executor
	// ExecutorServerName is the name in the certificate at ExecutorAddress, its host by default. The region uses
	// TLS for an Executor that has TLS, and whenever this is set.
	ExecutorServerName string
	// InFlight counts work besides the Executor's; a drain waits for it too.
	InFlight func() int

	// PeerAddress is for nodes: host:port at which the other node of the pair reaches this one.
	PeerAddress string
	// NodeFacts is for nodes that run replicas: the facts that the region uses for placement.
	NodeFacts *nodev1.NodeFacts
	// Replicas is for the same nodes: the reports about their replicas. nil reports nothing.
	Replicas ReplicaFeed
	// ReplicasEnded is called when the node closes: it tells whether none of its replicas runs any more, so that
	// the region need not wait for it. nil means no.
	ReplicasEnded func() bool

	// HeartbeatInterval and HeartbeatTimeout are the region's unless they are set. The interval is at most a third
	// of the timeout, which also bounds every send.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// CallTimeout bounds registering and deregistering, 10 s by default.
	CallTimeout time.Duration
	// Backoff are the pauses between attempts.
	Backoff Backoff
	// MaxReconnectAttempts is after how many failures in a row Run gives up with ErrUnreachable. 0 means 10, a
	// negative number never.
	MaxReconnectAttempts int
	// Rejoin registers again after a drain; otherwise Run returns a DrainedError.
	Rejoin bool

	// The callbacks run one at a time in their own goroutine: a slow one delays only the others, and then gets
	// only the newest event of its kind.

	// OnDrain is called when the region requests to finish current work and to start nothing new, and again if it
	// shortens the deadline.
	OnDrain func(Drain)
	// OnWake is called when there is work to poll for.
	OnWake func()
	// OnReport gets the modules that the region counts as active, without their prefix.
	OnReport func(modules []string)
	// OnSite is for nodes: it gets the region's data about the node's site.
	OnSite func(*nodev1.Site)
	// OnReplicaSet is for nodes that run replicas: it gets the version of the set that the node should have, also
	// after each stream opened.
	OnReplicaSet func(era, version int64)
	// OnReplicasReport is for the same nodes: the region requests that the next report of Replicas is complete.
	OnReplicasReport func()
	// OnState gets each new state of the connection.
	OnState func(Status)

	// Logger gets losses and refusals; nil is silent.
	Logger *slog.Logger
}

// Drain is the region's request for a drain.
type Drain struct {
	Reason string
	// Deadline is when the region cuts the connection, whatever is in flight.
	Deadline time.Time
}

func (o Options) withDefaults() (Options, error) {
	host, port, err := net.SplitHostPort(firstOf(o.Address))
	switch {
	case err != nil || host == "" || port == "":
		return o, fmt.Errorf("provider: invalid Address %q: want host:port", o.Address)
	case o.Name == "":
		return o, errors.New("provider: Name is required")
	case o.Token == nil:
		return o, errors.New("provider: Token is required")
	case o.Executor != nil && (o.ModuleNamespace == "" || o.ExecutorAddress == ""):
		return o, errors.New("provider: an Executor needs ModuleNamespace and ExecutorAddress")
	case o.Executor == nil && (o.ModuleNamespace != "" || o.Group != "" || o.ExecutorAddress != "" || o.ExecutorServerName != ""):
		return o, errors.New("provider: ModuleNamespace, Group, ExecutorAddress and ExecutorServerName need an Executor")
	case o.HeartbeatInterval < 0 || o.HeartbeatTimeout < 0 || o.CallTimeout < 0:
		return o, errors.New("provider: durations must not be negative")
	}
	if o.ExecutorAddress != "" && !strings.Contains(o.ExecutorAddress, ":") {
		o.ExecutorAddress = net.JoinHostPort(o.ExecutorAddress, defaultExecutorPort)
	}
	if o.Backoff, err = o.Backoff.withDefaults(); err != nil {
		return o, err
	}
	if o.MaxReconnectAttempts == 0 {
		o.MaxReconnectAttempts = DefaultMaxReconnectAttempts
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// terms of one connection are the region's, unless the options set others.
type terms struct{ interval, timeout time.Duration }

func (o Options) terms(answer *nodev1.RegisterResponse) terms {
	t := terms{
		interval: first(o.HeartbeatInterval, answer.GetHeartbeatInterval().AsDuration(), DefaultHeartbeatInterval),
		timeout:  first(o.HeartbeatTimeout, answer.GetHeartbeatTimeout().AsDuration(), DefaultHeartbeatTimeout),
	}
	t.interval = max(min(t.interval, t.timeout/3), time.Millisecond)
	return t
}

// regionLooks is how often the region checks for silent providers: it detects a loss that much after the
// timeout.
const regionLooks = time.Second

// lost is when the region counts as lost, from its last answer and the oldest unanswered heartbeat. That is as
// soon as the region itself detects a silent provider on average, so a link that is cut in one direction only
// is also detected within the timeout and a second. If this process was paused and sent the heartbeat late, the
// answer has half of the timeout.
func (t terms) lost(answered, unanswered time.Time) time.Time {
	at := answered.Add(t.timeout + min(t.interval, regionLooks)/2)
	if late := unanswered.Add(t.timeout / 2); late.After(at) {
		return late
	}
	return at
}

func first(choices ...time.Duration) time.Duration {
	for _, d := range choices {
		if d > 0 {
			return d
		}
	}
	return 0
}

// Backoff are the pauses between attempts to connect: doubled with each failure, and reset after a connection
// that was active.
type Backoff struct {
	Initial time.Duration // 1 s
	Max     time.Duration // 60 s
	// Jitter spreads each pause by that part of itself to either side, so that providers that lost one server do
	// not all return at once: 0.5 by default, at most 1.
	Jitter float64
}

func (b Backoff) withDefaults() (Backoff, error) {
	if b.Initial == 0 {
		b.Initial = time.Second
	}
	if b.Max == 0 {
		b.Max = max(time.Minute, b.Initial)
	}
	if b.Jitter == 0 {
		b.Jitter = 0.5
	}
	if b.Initial < 0 || b.Max < b.Initial || b.Jitter < 0 || b.Jitter > 1 {
		return b, fmt.Errorf("provider: invalid Backoff from %s to %s with jitter %g", b.Initial, b.Max, b.Jitter)
	}
	return b, nil
}

// pause is the wait before the next attempt after so many failures in a row; chance is from 0 to 1.
func (b Backoff) pause(failures int, chance float64) time.Duration {
	d := b.Initial
	for n := 1; n < failures && d < b.Max; n++ {
		d *= 2
		if d <= 0 { // overflow
			d = b.Max
		}
	}
	d = min(d, b.Max)
	spread := float64(d) * b.Jitter
	return min(b.Max, time.Duration(float64(d)-spread+2*spread*chance))
}

// firstOf is the first address of a gRPC target that has several.
func firstOf(address string) string {
	if _, several, ok := strings.Cut(address, ":///"); ok {
		address, _, _ = strings.Cut(several, ",")
	}
	return address
}
