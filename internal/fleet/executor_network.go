package fleet

import (
	"net/netip"
	"slices"
	"strings"
)

// ExecutorNetworks are where the region may dial executors, besides the address that their provider registered
// from. Without this limit, a provider could make the region connect to anything it reaches.
type ExecutorNetworks []netip.Prefix

// ParseExecutorNetworks parses networks such as 10.0.0.0/8; a single address is a network of one.
func ParseExecutorNetworks(texts []string) (ExecutorNetworks, error) {
	var all ExecutorNetworks
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if ip, wrong := netip.ParseAddr(text); wrong == nil {
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return nil, Errorf(Invalid, "invalid network %.80q", text).At("executor-network").
				WithHint("give an address or a prefix, for example 10.0.0.0/8")
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// Allow rejects an address that is neither the caller's nor in one of the networks. The zero caller has no address,
// as on a Unix socket, and may use any.
func (n ExecutorNetworks) Allow(caller, ip netip.Addr) error {
	caller, ip = plainIP(caller), plainIP(ip)
	if !caller.IsValid() || ip == caller || slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	return Errorf(Denied, "the executor's address %s %s", ip, notTheCallers).At("executorAddress").WithHint(executorHint)
}

const (
	notTheCallers = "is not the one that its provider registered from"
	executorHint  = "register from the executor's host, or allow its network: holdfast server --executor-network CIDR"
)

// ExecutorHint is what to do if Allow rejected a dial, "" for other errors. It matches the text, because a
// transport keeps nothing else of an error.
func ExecutorHint(err error) string {
	if err != nil && strings.Contains(err.Error(), notTheCallers) {
		return executorHint
	}
	return ""
}

// AllowHost is Allow for an address whose host is an IP. A name is checked when it is dialled, by what it resolves
// to.
func (n ExecutorNetworks) AllowHost(caller netip.Addr, host string) error {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	return n.Allow(caller, ip)
}

func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
