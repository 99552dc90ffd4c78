package fleet

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxArgument is the longest argument, and the longest NAME=value, that a program can be given: Linux allows 32 pages
// for each, with the NUL at its end.
const MaxArgument = 32*4096 - 1

// Replace replaces ${NAME} by what valueOf gives for that name, and $$ by a dollar. Everything else stays: it may have a
// meaning for the program.
func Replace(text string, valueOf func(name string) (value string, known bool)) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "{"), "}")
		value, known := "", false
		if strings.HasPrefix(after, "{") && closed {
			value, known = valueOf(name)
		}
		switch {
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			text = after[1:]
		case known:
			out.WriteString(value)
			text = rest
		default:
			out.WriteByte('$')
		}
	}
}

// eachText visits what the node replaces names in, with its field, until do returns an error.
func (p Process) eachText(do func(field, text string) error) error {
	lists := map[string][]string{"/command": p.Command, "/args": p.Args}
	for i, command := range p.PreStart {
		lists["/preStart/"+strconv.Itoa(i)] = command
	}
	for _, field := range slices.Sorted(maps.Keys(lists)) {
		for i, arg := range lists[field] {
			if err := do(processField+field+"/"+strconv.Itoa(i), arg); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if err := do(processField+"/env/"+name, p.Env[name]); err != nil {
			return err
		}
	}
	return nil
}

// CheckArguments rejects an argument, or a NAME=value, that the kernel passes to no program. Names are replaced already.
func (p Process) CheckArguments() error {
	return p.checkSizes(func(text string) int { return len(text) })
}

// validateSizes rejects what gets too long whatever its names become: one byte at least.
func (p Process) validateSizes() error {
	return p.checkSizes(func(text string) int {
		return len(Replace(text, func(name string) (string, bool) { return "?", replaced(name) }))
	})
}

func (p Process) checkSizes(sizeOf func(text string) int) error {
	return p.eachText(func(field, text string) error {
		size, what := sizeOf(text), "argument"
		if name, inEnv := strings.CutPrefix(field, processField+"/env/"); inEnv {
			size, what = size+len(name)+len("="), "NAME=value"
		}
		if size <= MaxArgument {
			return nil
		}
		return Errorf(Invalid, "the %s has %d bytes; the kernel's limit is %d", what, size, MaxArgument).At(field).
			WithHint("put large values into files")
	})
}

// replaced reports whether a name is one that the node may replace.
func replaced(name string) bool {
	return portName.MatchString(name) || strings.HasPrefix(name, "HOLDFAST_") && ValidEnvName(name)
}

// portName matches names of the node's variables for ports.
var portName = regexp.MustCompile(`^PORT(_[A-Z0-9_]+)?$`)

// CheckPortNames rejects ${PORT_NAME} of no port, unless the process declares such a variable: the program would get the
// text as it is. The ports are all that the process has, those of its type too.
func (p Process) CheckPortNames() error {
	check := func(field, text string) (err error) {
		Replace(text, func(name string) (string, bool) {
			_, own := p.Env[name]
			if err == nil && portName.MatchString(name) && !own && !p.hasPortName(name) {
				err = Errorf(Invalid, "unknown port ${%.80s}; %s", name, p.portNames()).At(field).
					WithHint(fmt.Sprintf("declare it in ports, or write $${%.80s} to keep the text", name))
			}
			return "", false
		})
		return err
	}
	if err := p.eachText(check); err != nil {
		return err
	}
	for i, f := range p.Files {
		if err := check(processField+"/files/"+strconv.Itoa(i)+"/content", f.Content); err != nil {
			return err
		}
	}
	return nil
}

func (p Process) hasPortName(name string) bool {
	return name == "PORT" && len(p.Ports) > 0 || p.portEnv(name)
}

// portNames tells which names of ports can be used.
func (p Process) portNames() string {
	if len(p.Ports) == 0 {
		return "no port is declared"
	}
	names := []string{"${PORT}"}
	for _, port := range p.Ports {
		names = append(names, "${"+PortEnv(port.Name)+"}")
	}
	return "use " + OrList(names)
}
