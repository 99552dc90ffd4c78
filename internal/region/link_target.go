package region

import (
	"math/rand/v2"
	"net"
	"strings"

	"google.golang.org/grpc/resolver"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// linkScheme is the scheme of a target with the addresses of several servers. A node may use any of them, because
// its state is not in the server.
const linkScheme = "holdfast-link"

func init() { resolver.Register(linkResolver{}) }

// linkTarget makes one target of host:port, or of several joined by commas.
func linkTarget(link string) (string, error) {
	if link == "" {
		return "", fleet.Errorf(fleet.Invalid, "the address of the region's link is required").At("link").WithHint("give --link HOST:PORT[,HOST:PORT…]")
	}
	if !strings.Contains(link, ",") {
		return link, nil
	}
	return linkScheme + ":///" + link, nil
}

// linkResolver takes the addresses from the target itself.
type linkResolver struct{}

// Scheme is linkScheme.
func (linkResolver) Scheme() string { return linkScheme }

// Build passes the addresses to the connection; they never change.
func (linkResolver) Build(t resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for _, address := range strings.Split(t.Endpoint(), ",") {
		address = strings.TrimSpace(address)
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fleet.Errorf(fleet.Invalid, "invalid address %.80q: want host:port", address).At("link")
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: host})
	}
	// In random order: nodes spread, and none insists on a server that hangs.
	rand.Shuffle(len(state.Addresses), func(i, j int) { //nolint:gosec // an order is no secret
		state.Addresses[i], state.Addresses[j] = state.Addresses[j], state.Addresses[i]
	})
	return linkResolver{}, cc.UpdateState(state)
}

// ResolveNow does nothing: the addresses are fixed.
func (linkResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close does nothing: there is nothing to release.
func (linkResolver) Close() {}
