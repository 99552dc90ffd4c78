// Command intruder is what containers run in tests of their isolation: it does what its first argument says, prints
// "held X" for what it could not do and "BROKE X" for the rest, then "end", and stays until it is stopped.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	executable = 0o755
	disk       = 8 << 8 // the number of the machine's first disk
	nobody     = 65534
	patience   = 2 * time.Second
	home       = "/holdfast"
	longLine   = 3 << 20
	// moreTasks is above what a container may have, and far below what would harm a machine.
	moreTasks = 9000
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run(what string, args []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	switch what {
	case "attack": // whatever a container could reach
		runtime.LockOSThread()
		privileges()
		machine()
		files()
		sockets()
		own()
	case "dial": // a socket of the machine
		try("dial "+args[0], dial("unix", args[0]))
	case "bomb": // forks, and does not heed SIGTERM
		signal.Ignore(syscall.SIGTERM)
		bomb()
	case "shout": // one long line that steers terminals
		fmt.Print("\x1b]0;owned\a\x1b[2J", strings.Repeat("#", longLine), "\x00\xff\n")
	case "link": // puts a link in place of a directory
		return errors.Join(os.RemoveAll(args[0]), os.Symlink(args[1], args[0]))
	case "user": // by the rights that it has
		fmt.Print(os.Geteuid())
		return nil
	case "say":
		fmt.Println(args[0])
	default:
		return fmt.Errorf("%q is nothing that it does", what)
	}
	fmt.Println("end")
	<-stop
	return nil
}

func try(name string, err error) {
	if err == nil {
		fmt.Println("BROKE", name)
	} else {
		fmt.Println("held", name)
	}
}

var errHeld = errors.New("it could not")

func unless(broke bool) error {
	if broke {
		return nil
	}
	return errHeld
}

// privileges tries to have or gain what root on the machine has.
func privileges() {
	status, _ := os.ReadFile("/proc/self/status")
	field := func(name string) string {
		_, after, _ := strings.Cut(string(status), name+":")
		value, _, _ := strings.Cut(after, "\n")
		return strings.TrimSpace(value)
	}
	bounds, err := strconv.ParseUint(field("CapBnd"), 16, 64)
	if err != nil {
		bounds = 1<<64 - 1
	}
	for name, bit := range map[string]int{
		"DAC_READ_SEARCH": 2, "LINUX_IMMUTABLE": 9, "NET_ADMIN": 12, "NET_RAW": 13, "IPC_LOCK": 14, "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PTRACE": 19,
		"SYS_ADMIN": 21, "SYS_BOOT": 22, "SYS_NICE": 23, "SYS_RESOURCE": 24, "SYS_TIME": 25, "MKNOD": 27, "MAC_ADMIN": 33, "SYSLOG": 34, "BPF": 39,
	} {
		try("have "+name, unless(bounds&(1<<bit) != 0))
	}
	try("be without no_new_privs", unless(field("NoNewPrivs") != "1"))
	try("be without seccomp", unless(field("Seccomp") != "2"))
	try("gain by a setuid program", gain())
	try("a new user namespace", syscall.Unshare(syscall.CLONE_NEWUSER))
	try("a new mount namespace", syscall.Unshare(syscall.CLONE_NEWNS))
}

// gain has another user run this program as root.
func gain() error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	path := filepath.Join(home, "as-root")
	if err := os.WriteFile(path, self, executable); err != nil {
		return err
	}
	if err := os.Chmod(path, os.ModeSetuid|executable); err != nil {
		return err
	}
	cmd := exec.Command(path, "user")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := cmd.Output()
	if err == nil && string(said) != "0" {
		err = errHeld
	}
	return err
}

// machine tries to reach the kernel, the disks and the processes of the machine.
func machine() {
	try("mount", syscall.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	try("remount", syscall.Mount("", "/proc/sys", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	for _, dir := range []string{home, "/tmp"} {
		try("a disk in "+dir, syscall.Mknod(filepath.Join(dir, "disk"), syscall.S_IFBLK|0o600, disk))
	}
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/dev/mem"} {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = file.Close()
		}
		try("write "+path, err)
	}
	core, err := os.Open("/proc/kcore")
	if err == nil {
		_, err = core.Read(make([]byte, 1))
	}
	try("read the machine's memory", err)
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	seen := false
	for _, name := range names {
		text, _ := os.ReadFile(name)
		seen = seen || bytes.Contains(text, []byte("containerd")) || bytes.Contains(text, []byte("dockerd"))
	}
	try("see other processes", unless(seen || len(names) == 0))
}

// files tries to read what is on the machine.
func files() {
	for _, path := range strings.Split(os.Getenv("FILES"), ":") {
		for _, root := range []string{"", "/proc/1/root", home + "/../..", "/proc/self/cwd/../.."} {
			_, err := os.Stat(root + path)
			try("stat "+root+path, err)
		}
	}
	try("see the agent's environment", unless(os.Getenv("DOCKER_HOST") != ""))
}

// sockets tries to reach what listens on the machine for the machine alone, and the traffic of others.
func sockets() {
	for _, path := range strings.Split(os.Getenv("SOCKETS"), ":") {
		try("dial "+path, dial("unix", path))
	}
	for _, port := range strings.Split(os.Getenv("PORTS"), ":") {
		for _, host := range []string{"127.0.0.1", "::1", gateway()} {
			try("dial "+host+" "+port, dial("tcp", net.JoinHostPort(host, port)))
		}
	}
	for name, socket := range map[string][3]int{
		"packets": {syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300}, "raw IP": {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP},
	} {
		_, err := syscall.Socket(socket[0], socket[1], socket[2])
		try("a socket of "+name, err)
	}
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, patience)
	if err == nil {
		err = c.Close()
	}
	return err
}

// gateway is the machine's address on the network of its containers.
func gateway() string {
	routes, _ := os.ReadFile("/proc/net/route")
	for line := range strings.Lines(string(routes)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" {
			continue
		}
		if n, err := strconv.ParseUint(fields[2], 16, 32); err == nil {
			return net.IPv4(byte(n), byte(n>>8), byte(n>>16), byte(n>>24)).String()
		}
	}
	return "no gateway"
}

// own is what it may have.
func own() {
	if text, err := os.ReadFile(os.Getenv("HOLDFAST_CONFIG")); err == nil && bytes.Contains(text, []byte("mine")) {
		fmt.Println("has its config")
	}
	if err := os.WriteFile(filepath.Join(home, "left"), nil, 0o600); err == nil {
		fmt.Println("has its directory")
	}
	fmt.Println("gateway", gateway())
	fmt.Println("user", os.Geteuid())
}

// bomb starts processes that do nothing, until it may not.
func bomb() {
	for n := range moreTasks {
		pid, _, failed := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if failed != 0 {
			fmt.Println("held a fork bomb after", n)
			return
		}
		for pid == 0 {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // until it is killed
		}
	}
	fmt.Println("BROKE a fork bomb")
}
