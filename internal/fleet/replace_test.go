package fleet_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19: what no kernel passes to a program is refused when it is declared, and with the replaced names when it starts.
func TestArgumentsFitTheKernel(t *testing.T) {
	t.Parallel()
	const limit = 131_071
	long := func(n int) string { return strings.Repeat("x", n) }
	declared := func(p fleet.Process) fleet.DeploymentSpec {
		if p.Command == nil {
			p.Command = []string{"server"}
		}
		p.Ports = []fleet.ProcessPort{{Name: "http"}}
		return fleet.DeploymentSpec{Process: p}.WithDefaults()
	}
	for name, row := range map[string]struct {
		process fleet.Process
		field   string
		says    string
	}{
		"a command":           {fleet.Process{Command: []string{"sh", "-c", long(limit + 1)}}, "/process/command/2", "the argument has 131072 bytes; the kernel's limit is 131071"},
		"an argument":         {fleet.Process{Args: []string{long(limit + 2)}}, "/process/args/0", "the argument has 131073 bytes; the kernel's limit is 131071"},
		"a command before it": {fleet.Process{PreStart: [][]string{{"true"}, {"echo", long(limit + 1)}}}, "/process/preStart/1/1", "the argument has 131072 bytes; the kernel's limit is 131071"},
		"a variable":          {fleet.Process{Env: map[string]string{"TABLE": long(limit + 1 - len("TABLE="))}}, "/process/env/TABLE", "the NAME=value has 131072 bytes; the kernel's limit is 131071"},
		"whatever it becomes": {fleet.Process{Args: []string{long(limit) + "${PORT}"}}, "/process/args/0", "the argument has 131072 bytes; the kernel's limit is 131071"},
		"a longest argument":  {process: fleet.Process{Args: []string{long(limit)}}},
		"a longest variable":  {process: fleet.Process{Env: map[string]string{"TABLE": long(limit - len("TABLE="))}}},
		"dollars that vanish": {process: fleet.Process{Args: []string{long(limit-1) + "$$"}}},
		"a name that may fit": {process: fleet.Process{Args: []string{long(limit-4) + "${PORT_HTTP}"}}},
		"one of the replica":  {process: fleet.Process{Args: []string{long(limit-4) + "${HOLDFAST_EPOCH}"}}},
		"a name of its own":   {fleet.Process{Args: []string{long(limit-4) + "${HOME}"}}, "/process/args/0", "the argument has 131074 bytes; the kernel's limit is 131071"},
		"another than a name": {fleet.Process{Args: []string{long(limit-4) + "${PORT:-}"}}, "/process/args/0", "the argument has 131076 bytes; the kernel's limit is 131071"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := declared(row.process).Validate()
			if row.field == "" {
				require.NoError(t, err)
				return
			}
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []string{row.field, row.says, "put large values into files"}, []string{e.Field, e.Message, e.Hint})
		})
	}

	t.Run("with the replaced names", func(t *testing.T) {
		t.Parallel()
		p := fleet.Process{Command: []string{"server"}, Args: []string{long(limit)}, Env: map[string]string{"A": long(limit - 2)}}
		require.NoError(t, p.CheckArguments())
		p.Args[0] += "8"
		require.ErrorContains(t, p.CheckArguments(), "/process/args/0: the argument has 131072 bytes; the kernel's limit is 131071")
	})
}

// X19: a misspelt port is refused; whatever else has the form of a name may have a meaning for the program.
func TestPortNames(t *testing.T) {
	t.Parallel()
	process := func(arg string) fleet.Process {
		return fleet.Process{
			Command: []string{"sh", "-c", arg}, Env: map[string]string{"PORT_OWN": "1"},
			Ports: []fleet.ProcessPort{{Name: "http"}, {Name: "admin-ui"}},
		}
	}
	for _, good := range []string{
		"${PORT}", "${PORT_HTTP} ${PORT_ADMIN_UI}", "${PORT_OWN}", "$${PORT_HTP}", "$$$${PORT_HTP}", "$PORT_HTP", "${PORT_HTP", "${PORT:-80}",
		"${HOME} ${PORTS} ${port_htp} ${HOLDFAST_X}", "PORT_HTP", "{PORT_HTP}",
	} {
		require.NoError(t, process(good).CheckPortNames(), good)
	}
	const use = "use ${PORT}, ${PORT_HTTP} or ${PORT_ADMIN_UI}"
	refused := func(p fleet.Process, field, says string) {
		t.Helper()
		var e *fleet.Error
		require.ErrorAs(t, p.CheckPortNames(), &e)
		require.Equal(t, []string{field, says}, []string{e.Field, e.Message})
		require.Equal(t, "declare it in ports, or write $${PORT_HTP} to keep the text", e.Hint)
	}
	for _, bad := range []string{"${PORT_HTP}", "--listen=:${PORT_HTP}", "$$${PORT_HTP}", "${HOME}${PORT_HTP}", "${PORT} ${PORT_HTP} ${PORT_HTPS}"} {
		refused(process(bad), "/process/command/2", "unknown port ${PORT_HTP}; "+use)
	}
	p := process("")
	p.Args = []string{"${PORT_HTP}"}
	refused(p, "/process/args/0", "unknown port ${PORT_HTP}; "+use)
	p = process("")
	p.PreStart = [][]string{{"a"}, {"b", "${PORT_HTP}"}}
	refused(p, "/process/preStart/1/1", "unknown port ${PORT_HTP}; "+use)
	p = process("")
	p.Env["ADDRESS"] = ":${PORT_HTP}"
	refused(p, "/process/env/ADDRESS", "unknown port ${PORT_HTP}; "+use)
	p = process("")
	p.Files = []fleet.ProcessFile{{Path: "a"}, {Path: "b", Content: "listen ${PORT_HTP};"}}
	refused(p, "/process/files/1/content", "unknown port ${PORT_HTP}; "+use)
	p = process("${PORT_HTP}")
	p.Ports = nil
	refused(p, "/process/command/2", "unknown port ${PORT_HTP}; no port is declared")
}
