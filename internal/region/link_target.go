package region

import (
	"math/rand/v2"
	"net"
	"strings"

	"google.golang.org/grpc/resolver"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// linkScheme is that of a target with the addresses of several servers. Any of them will do:
// what a node needs of its region is not in the server that it speaks to.
const linkScheme = "holdfast-link"

func init() { resolver.Register(linkResolver{}) }

// linkTarget makes one target of host:port, or of several joined by commas.
func linkTarget(link string) (string, error) {
	if link == "" {
		return "", fleet.Errorf(fleet.Invalid, "the address of the region's link is missing").At("link").WithHint("give --link HOST:PORT[,HOST:PORT…]")
	}
	if !strings.Contains(link, ",") {
		return link, nil
	}
	return linkScheme + ":///" + link, nil
}

// linkResolver knows the addresses from the target itself.
type linkResolver struct{}

// Scheme is linkScheme.
func (linkResolver) Scheme() string { return linkScheme }

// Build gives the addresses to the connection; they never change.
func (linkResolver) Build(t resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for _, address := range strings.Split(t.Endpoint(), ",") {
		address = strings.TrimSpace(address)
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fleet.Errorf(fleet.Invalid, "%.80q is not host:port", address).At("link")
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: host})
	}
	// In any order: nodes spread, and none insists on a server that hangs.
	rand.Shuffle(len(state.Addresses), func(i, j int) { //nolint:gosec // an order is no secret
		state.Addresses[i], state.Addresses[j] = state.Addresses[j], state.Addresses[i]
	})
	return linkResolver{}, cc.UpdateState(state)
}

// ResolveNow has nothing newer to say.
func (linkResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close has nothing to let go.
func (linkResolver) Close() {}
