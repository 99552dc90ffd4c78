package fleet

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxProcessSeconds = 3600
	maxStartup        = 24 * 3600
	maxPorts          = 16
	maxFiles          = 64
	maxFilePath       = 200
	maxPreStart       = 16
	maxImage          = 512
)

// MaxCommandBytes bounds what is passed to a program and to the commands before it: their arguments and the environment.
// An engine repeats it whenever it describes a container, so it must fit into its answers.
const MaxCommandBytes = 256 << 10

// imageName is the grammar of engines. The name becomes a part of paths of the engine's API, so nothing in it may
// lead elsewhere.
var imageName = regexp.MustCompile(`^(` + imageHost + `(:[0-9]{1,5})?/|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?/)?` +
	`[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?$`)

const imageHost = `[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*`

// validateImage refuses what is not a name. An engine also finds its images by their ids, and one image may have another
// id on each machine.
func validateImage(image string) error {
	const field = processField + "/image"
	switch {
	case len(image) > maxImage || !imageName.MatchString(image):
		return Errorf(Invalid, "invalid image %.80q: want [HOST[:PORT]/]NAME[:TAG][@DIGEST], up to %d bytes", image, maxImage).At(field).
			WithHint("a digest is sha256: and 64 lowercase hex digits, or sha512: and 128")
	case strings.HasPrefix(image, "sha256:"):
		return Errorf(Invalid, "%.80q is the id of an image on one machine, not a name", image).At(field).WithHint("give the image by name, with @sha256:... to fix its content")
	}
	return nil
}

const processField = "/process"

// validate checks the declared process. Its type decides whether it needs a command or an image.
func (p Process) validate() error {
	switch {
	case p.Driver != "" && p.Driver != DriverProcess && p.Driver != DriverDocker:
		return Errorf(Invalid, "unknown driver %.40q", p.Driver).At(processField + "/driver").WithHint("use process or docker")
	case p.Driver == DriverProcess && p.Image != "":
		return Errorf(Invalid, "driver process cannot run an image").At(processField + "/image").WithHint(`omit the driver, or use "docker"`)
	case p.StopSeconds < 0 || p.StopSeconds > maxProcessSeconds:
		return Errorf(Invalid, "invalid stop time: want 0 to %d seconds", maxProcessSeconds).At(processField + "/stopSeconds").WithHint("use 0 for the default")
	case p.SharedMemory < 0 || p.SharedMemory > maxReplicaMemory:
		return Errorf(Invalid, "%d bytes of shared memory requested; the limit is %d", p.SharedMemory, int64(maxReplicaMemory)).At(processField + "/sharedMemory").WithHint(`use 0 for the engine's default, or give bytes, or "512Mi", "4Gi"`)
	case p.Startup != nil && !(p.Startup.Deadline > 0 && p.Startup.Deadline <= maxStartup):
		return Errorf(Invalid, "invalid start-up deadline: want more than 0 and up to %d seconds", maxStartup).At(processField + "/startup/deadline")
	}
	if p.Image != "" {
		if err := validateImage(p.Image); err != nil {
			return err
		}
	}
	for _, check := range []func() error{p.validateCommands, p.validateEnv, p.validateSizes, p.validateFiles, p.validatePorts, p.validateChecks} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (p Process) validateCommands() error {
	if err := validateCommand(processField+"/command", p.Command); err != nil {
		return err
	}
	if len(p.Command) > 0 && strings.HasPrefix(p.Command[0], "-") {
		return Errorf(Invalid, "%.40q is an option, not a program", p.Command[0]).At(processField + "/command/0").
			WithHint("give options for the image's program in args")
	}
	if err := validateArgs(processField+"/args", p.Args); err != nil {
		return err
	}
	if size := p.commandBytes(); size > MaxCommandBytes {
		return Errorf(Invalid, "command, args, env and preStart have %d bytes; the limit is %d", size, MaxCommandBytes).At(processField).
			WithHint("put large values into files")
	}
	if len(p.PreStart) > maxPreStart {
		return Errorf(Invalid, "%d commands given; the limit is %d", len(p.PreStart), maxPreStart).At(processField + "/preStart")
	}
	for i, c := range p.PreStart {
		field := processField + "/preStart/" + strconv.Itoa(i)
		if len(c) == 0 {
			return Errorf(Invalid, "command is empty: give at least its program").At(field)
		}
		if err := validateCommand(field, c); err != nil {
			return err
		}
	}
	return nil
}

func (p Process) commandBytes() (size int) {
	for _, command := range append(slices.Clone(p.PreStart), p.Command, p.Args) {
		for _, arg := range command {
			size += len(arg)
		}
	}
	for name, value := range p.Env {
		size += len(name) + len("=") + len(value)
	}
	return size
}

func validateCommand(field string, command []string) error {
	if len(command) > 0 && command[0] == "" {
		return Errorf(Invalid, "command is empty: give at least its program").At(field + "/0")
	}
	return validateArgs(field, command)
}

func validateArgs(field string, args []string) error {
	for i, arg := range args {
		if strings.ContainsRune(arg, 0) {
			return Errorf(Invalid, "a NUL byte cannot be passed to a command").At(field + "/" + strconv.Itoa(i))
		}
	}
	return nil
}

func (p Process) validateEnv() error {
	if err := validateEnv(processField+"/env", p.Env); err != nil {
		return err
	}
	for name := range p.Env {
		if len(p.Ports) > 0 && name == "PORT" || p.portEnv(name) {
			return Errorf(Invalid, "%s is reserved for the node, which sets it for the port of that name", name).At(processField + "/env").
				WithHint("declare the port in ports")
		}
	}
	return nil
}

// PortEnv is the environment variable for a port's number: PORT_ADMIN_UI for "admin-ui".
func PortEnv(name string) string {
	return "PORT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func (p Process) portEnv(name string) bool {
	return slices.ContainsFunc(p.Ports, func(port ProcessPort) bool { return PortEnv(port.Name) == name })
}

func (p Process) validateFiles() error {
	if len(p.Files) > maxFiles {
		return Errorf(Invalid, "%d files given; the limit is %d", len(p.Files), maxFiles).At(processField + "/files")
	}
	seen, total := map[string]bool{}, int64(0)
	for i, f := range p.Files {
		field := processField + "/files/" + strconv.Itoa(i)
		if !relative(f.Path) {
			return Errorf(Invalid, "invalid path %.80q: want a path below the replica's directory", f.Path).At(field + "/path").
				WithHint(`use a relative path without "..", for example conf/nginx.conf`)
		}
		if seen[f.Path] {
			return Errorf(Invalid, "file %s is given twice", f.Path).At(field + "/path")
		}
		seen[f.Path] = true
		total += int64(len(f.Content))
		if f.Body != nil {
			total += f.Body.Size
		}
	}
	for i, f := range p.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if seen[dir] {
				return Errorf(Invalid, "%s is given as a file, so it cannot be a directory", dir).At(processField + "/files/" + strconv.Itoa(i) + "/path")
			}
		}
	}
	if total > MaxFilesBytes {
		return Errorf(Invalid, "the files have %d bytes; the limit for all of them is %d", total, MaxFilesBytes).At(processField + "/files").
			WithHint("put larger files into an image, or fetch them with a preStart command")
	}
	return nil
}

func relative(p string) bool {
	return p != "" && p != "." && len(p) <= maxFilePath && path.Clean(p) == p && !path.IsAbs(p) &&
		p != ".." && !strings.HasPrefix(p, "../") && !strings.ContainsAny(p, "\x00\\\n")
}

func (p Process) validatePorts() error {
	if len(p.Ports) > maxPorts {
		return Errorf(Invalid, "%d ports given; the limit is %d", len(p.Ports), maxPorts).At(processField + "/ports")
	}
	names, numbers := map[string]bool{}, map[int]bool{}
	for i, port := range p.Ports {
		field := processField + "/ports/" + strconv.Itoa(i)
		if err := ValidateName(field+"/name", port.Name); err != nil {
			return err
		}
		switch {
		case names[port.Name]:
			return Errorf(Invalid, "port %s is given twice", port.Name).At(field + "/name")
		case port.Port < 0 || port.Port > maxPort:
			return Errorf(Invalid, "invalid port: want 0 to %d", maxPort).At(field + "/port").WithHint("use 0 to let the node choose a free one")
		case port.Port > 0 && numbers[port.Port]:
			return Errorf(Invalid, "port %d is given twice", port.Port).At(field + "/port")
		}
		names[port.Name], numbers[port.Port] = true, true
	}
	return nil
}

// FixedPorts are the ports that only one replica per node can have.
func (p Process) FixedPorts() []int {
	var out []int
	for _, port := range p.Ports {
		if port.Port > 0 {
			out = append(out, port.Port)
		}
	}
	return out
}
