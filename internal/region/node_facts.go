package region

import (
	"bufio"
	"bytes"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// NodeMachine is what a node reports about its machine; omitted values are detected.
type NodeMachine struct {
	// Labels are for placement.
	Labels map[string]string
	// CPU is cores, Memory bytes: what replicas may use of the machine.
	CPU    float64
	Memory int64
	// GPUs is detected if negative.
	GPUs int
	// Address is the host of replicas' endpoints.
	Address string

	separation fleet.Separation
}

// detect fills in omitted values.
func (m NodeMachine) detect(api string) NodeMachine {
	if m.CPU <= 0 {
		m.CPU = float64(runtime.NumCPU())
	}
	if m.Memory <= 0 {
		m.Memory = machineMemory()
	}
	if m.GPUs < 0 {
		m.GPUs = machineGPUs()
	}
	if m.Address == "" {
		m.Address = addressTowards(api)
	}
	return m
}

func (m NodeMachine) facts(drivers []fleet.Driver) *nodev1.NodeFacts {
	names := make([]string, len(drivers))
	for i, d := range drivers {
		names[i] = string(d)
	}
	slices.Sort(names)
	return &nodev1.NodeFacts{
		Address: m.Address, Labels: maps.Clone(m.Labels), Drivers: names, Cpu: m.CPU, Memory: m.Memory, Gpus: int32(m.GPUs), //nolint:gosec // few
		Isolation: string(m.separation), Readiness: true,
	}
}

// machineMemory is the memory from /proc/meminfo, 0 if unknown: then no replica that requests memory is placed
// here.
func machineMemory() int64 {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(info))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, _ := strconv.ParseInt(fields[1], 10, 64) // 0 as above
			return n << 10
		}
	}
	return 0
}

// machineGPUs counts Nvidia GPUs, the only ones with recognisable devices.
func machineGPUs() int {
	found, _ := filepath.Glob("/dev/nvidia[0-9]*") // fails only for a bad pattern
	return len(found)
}

// addressTowards is this machine's source address for connections to the region: in simple networks, others in the
// region reach the machine there.
func addressTowards(api string) string {
	const here = "127.0.0.1"
	at, err := url.Parse(api)
	if err != nil || at.Hostname() == "" {
		return here
	}
	conn, err := net.Dial("udp", net.JoinHostPort(at.Hostname(), "9")) //nolint:noctx // no packet is sent
	if err != nil {
		return here
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return here
	}
	return host
}
