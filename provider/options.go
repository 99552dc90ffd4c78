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

// Defaults of what Options leaves out.
const (
	DefaultHeartbeatInterval    = 5 * time.Second
	DefaultHeartbeatTimeout     = 15 * time.Second
	DefaultMaxReconnectAttempts = 10
	defaultCallTimeout          = 10 * time.Second
	defaultExecutorPort         = "9091"
)

// Options say where to connect, as whom, and with what. Address, Name and Token must be set.
type Options struct {
	// Address of the region's link, host:port, or a gRPC target of several (scheme:///…), of
	// which any will do.
	Address string
	// Name tells apart the providers of one identity: a DNS label.
	Name string
	// Token is asked for before every call, so that it may be signed anew each time.
	Token func(ctx context.Context) (string, error)
	// TLS is used unless Insecure is set; nil means the system's certificates.
	TLS      *tls.Config
	Insecure bool

	// ModuleNamespace is the prefix of the modules' names, Group what providers that share it
	// have in common, ExecutorAddress where the region reaches the Executor. All three stay
	// empty for a provider without modules. An address without a port has 9091.
	ModuleNamespace, Group, ExecutorAddress string
	// Executor has the modules.
	Executor *Executor
	// ExecutorServerName is the name that the certificate at ExecutorAddress is for, its host by
	// default. The region speaks TLS to an Executor that has TLS, and wherever this is set.
	ExecutorServerName string
	// InFlight counts work beside the Executor's, which a drain has to wait for as well.
	InFlight func() int

	// PeerAddress is for nodes: host:port at which the other node of the pair reaches this one.
	PeerAddress string
	// NodeFacts is for nodes that run replicas: what the region places them by.
	NodeFacts *nodev1.NodeFacts
	// Replicas is for the same nodes: what became of their replicas. Nil tells nothing.
	Replicas ReplicaFeed
	// ReplicasEnded is asked when the node closes: whether nothing of its replicas runs any more, so
	// that the region need not wait for it. Nil is no.
	ReplicasEnded func() bool

	// HeartbeatInterval and HeartbeatTimeout are the region's unless they are set. The interval
	// is at most a third of the timeout, which is also how long any send may take.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// CallTimeout bounds registering and deregistering, 10 s.
	CallTimeout time.Duration
	// Backoff are the pauses between attempts.
	Backoff Backoff
	// MaxReconnectAttempts is after how many failures in a row Run gives up with
	// ErrUnreachable. 0 means 10, a negative number never.
	MaxReconnectAttempts int
	// Rejoin registers again after a drain; otherwise Run returns a DrainedError.
	Rejoin bool

	// The callbacks run one at a time in a goroutine of their own: a slow one holds up nothing
	// but the others, and then misses all but the newest of its kind.

	// OnDrain tells that the region asked to finish what there is and to start nothing new, and once
	// more when it leaves less time than it said.
	OnDrain func(Drain)
	// OnWake tells that there is work to ask for.
	OnWake func()
	// OnReport has the modules that the region takes for active, without their prefix.
	OnReport func(modules []string)
	// OnSite is for nodes: what the region says of the node's site.
	OnSite func(*nodev1.Site)
	// OnReplicaSet is for nodes that run replicas: which version of its set the node should have. It
	// is told after each stream opened, too.
	OnReplicaSet func(era, version int64)
	// OnState tells where the connection stands.
	OnState func(Status)

	// Logger hears of losses and refusals; nil is silent.
	Logger *slog.Logger
}

// Drain is what the region asked for.
type Drain struct {
	Reason string
	// Deadline is when the region cuts the connection, whatever is in flight.
	Deadline time.Time
}

func (o Options) withDefaults() (Options, error) {
	host, port, err := net.SplitHostPort(firstOf(o.Address))
	switch {
	case err != nil || host == "" || port == "":
		return o, fmt.Errorf("provider: Address %q is not host:port", o.Address)
	case o.Name == "":
		return o, errors.New("provider: Name is empty")
	case o.Token == nil:
		return o, errors.New("provider: Token is nil")
	case o.Executor != nil && (o.ModuleNamespace == "" || o.ExecutorAddress == ""):
		return o, errors.New("provider: an Executor needs ModuleNamespace and ExecutorAddress")
	case o.Executor == nil && (o.ModuleNamespace != "" || o.Group != "" || o.ExecutorAddress != "" || o.ExecutorServerName != ""):
		return o, errors.New("provider: ModuleNamespace, Group, ExecutorAddress and ExecutorServerName need an Executor")
	case o.HeartbeatInterval < 0 || o.HeartbeatTimeout < 0 || o.CallTimeout < 0:
		return o, errors.New("provider: a negative duration")
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

// terms of one connection are what the region answered, unless the options say otherwise.
type terms struct{ interval, timeout time.Duration }

func (o Options) terms(answer *nodev1.RegisterResponse) terms {
	t := terms{
		interval: first(o.HeartbeatInterval, answer.GetHeartbeatInterval().AsDuration(), DefaultHeartbeatInterval),
		timeout:  first(o.HeartbeatTimeout, answer.GetHeartbeatTimeout().AsDuration(), DefaultHeartbeatTimeout),
	}
	t.interval = max(min(t.interval, t.timeout/3), time.Millisecond)
	return t
}

// regionLooks is how often the region looks who is silent: it knows of a loss that much after the timeout.
const regionLooks = time.Second

// lost is when the region is taken for lost that last answered then, and has not answered a heartbeat
// since: as soon as the region itself takes a silent provider for lost on average, so that a link which
// is cut in one direction alone is known within the timeout and a second too. A heartbeat that was late
// itself, in a process that was paused, has half of the timeout for its answer.
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

// Backoff are the pauses between attempts to connect: doubled with each failure, and begun
// anew after a connection that lived.
type Backoff struct {
	Initial time.Duration // 1 s
	Max     time.Duration // 60 s
	// Jitter spreads each pause over that part of itself to either side, so that those who lost
	// one server do not all return in the same moment: 0.5, at most 1.
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
		return b, fmt.Errorf("provider: a backoff from %s to %s with jitter %g", b.Initial, b.Max, b.Jitter)
	}
	return b, nil
}

// pause is the wait before the next attempt after so many failures in a row; chance is from
// 0 to 1.
func (b Backoff) pause(failures int, chance float64) time.Duration {
	d := b.Initial
	for n := 1; n < failures && d < b.Max; n++ {
		d *= 2
		if d <= 0 { // overflown
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
