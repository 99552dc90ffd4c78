package guardian

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listening gives where a process and those below it listen for TCP connections: a port, or an address and a port where
// only that address is listened on. Of a process with a network of its own it gives all that listens there.
func Listening(root int) ([]string, error) {
	dir := "/proc/" + strconv.Itoa(root)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	network, err := os.Readlink(dir + "/ns/net")
	if err != nil {
		return nil, err
	}
	all, err := listeners(dir)
	if err != nil {
		return nil, err
	}
	mine := func(string) bool { return true }
	if network == own {
		sockets, err := socketsBelow(root)
		if err != nil {
			return nil, err
		}
		mine = func(inode string) bool { return sockets[inode] }
	}
	var out []string
	for _, l := range all {
		if mine(l.inode) {
			out = append(out, l.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// listener is a socket that listens.
type listener struct {
	at    netip.AddrPort
	inode string
}

func (l listener) String() string {
	if l.at.Addr().IsUnspecified() {
		return strconv.Itoa(int(l.at.Port()))
	}
	return l.at.String()
}

// listeners reads those of the network of a process.
func listeners(dir string) ([]listener, error) {
	var all []listener
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(dir + "/net/" + name) //nolint:gosec // of a process
		if errors.Is(err, fs.ErrNotExist) {             // without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, parseListeners(table)...)
	}
	return all, nil
}

// stateListen is a listening socket in proc_net_tcp(5).
const stateListen = "0A"

func parseListeners(table []byte) []listener {
	var all []listener
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		if at, ok := parseSocket(f[1]); ok {
			all = append(all, listener{at: at, inode: f[9]})
		}
	}
	return all
}

// parseSocket reads an address and a port: words of 32 bits in the order of this machine, which is little-endian, and a
// number, all in hex.
func parseSocket(text string) (netip.AddrPort, bool) {
	address, number, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	port, bad := strconv.ParseUint(number, 16, 16)
	if err != nil || bad != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}

// socketsBelow gives the inodes of the sockets that a process and those below it have open. What ended meanwhile, or
// belongs to another user, has none.
func socketsBelow(root int) (map[string]bool, error) {
	sockets := map[string]bool{}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		dir := "/proc/" + strconv.Itoa(next[0])
		files, _ := os.ReadDir(dir + "/fd")
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(dir, "fd", f.Name())); err == nil && strings.HasPrefix(to, "socket:[") {
				sockets[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
			}
		}
		below, err := childrenOf(dir)
		if err != nil {
			return nil, err
		}
		next = append(next, below...)
	}
	return sockets, nil
}

// childrenOf reads those of each thread, which costs less than the whole process table.
func childrenOf(dir string) ([]int, error) {
	threads, err := os.ReadDir(dir + "/task")
	if errors.Is(err, fs.ErrNotExist) { // it has ended
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []int
	for _, t := range threads {
		list, err := os.ReadFile(filepath.Join(dir, "task", t.Name(), "children")) //nolint:gosec // of a process
		if err != nil {                                                            // the thread has ended
			continue
		}
		for _, word := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(word); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all, nil
}
