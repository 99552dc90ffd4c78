package fleet

import (
	"net/netip"
	"slices"
	"strings"
)

// ExecutorNetworks are where the region dials executors beside the address that their provider registered from.
// Without such a bound, a provider has the region connect to whatever the region reaches.
type ExecutorNetworks []netip.Prefix

// ParseExecutorNetworks reads networks such as 10.0.0.0/8; an address alone is a network of one.
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

// Allow refuses an address that is neither the caller's nor in one of the networks. The zero caller has no
// address, as on a Unix socket, and may be anywhere.
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

// ExecutorHint says what to do where a dial was refused by Allow, "" about another error. A transport keeps no more of
// an error than its text.
func ExecutorHint(err error) string {
	if err != nil && strings.Contains(err.Error(), notTheCallers) {
		return executorHint
	}
	return ""
}

// AllowHost is Allow where the host of an address is an IP; a name is judged by what it resolves to when it is
// dialled.
func (n ExecutorNetworks) AllowHost(caller netip.Addr, host string) error {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return nil //nolint:nilerr // it is a name
	}
	return n.Allow(caller, ip)
}

func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
