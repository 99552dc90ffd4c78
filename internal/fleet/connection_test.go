package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C3 to C14, C22, C36, C61, C65: every state by every event. Nothing leaves Disconnected.
func TestConnectionMachine(t *testing.T) {
	t.Parallel()
	var matrix, diagram strings.Builder
	_, _ = fmt.Fprintf(&matrix, "%-17s", "")
	for _, from := range fleet.ConnectionStates() {
		_, _ = fmt.Fprintf(&matrix, "%-14s", from)
	}
	diagram.WriteString("stateDiagram-v2\n  [*] --> Registered\n")
	for _, on := range fleet.ConnectionEvents() {
		_, _ = fmt.Fprintf(&matrix, "\n%-17s", on)
		for _, from := range fleet.ConnectionStates() {
			to, err := from.Next(on)
			if err != nil {
				require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
				require.Equal(t, from, to)
				require.NotContains(t, on.Leaves(), from)
				_, _ = fmt.Fprintf(&matrix, "%-14s", "-")
				continue
			}
			require.True(t, from.Live())
			require.Contains(t, on.Leaves(), from)
			_, _ = fmt.Fprintf(&matrix, "%-14s", to)
			_, _ = fmt.Fprintf(&diagram, "  %s --> %s: %s\n", from, to, on)
		}
	}
	lines := strings.Split(matrix.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	golden(t, "testdata/connection_machine.golden", "", "", strings.Join(lines, "\n")+"\n")
	golden(t, "../../docs/link.md", "```mermaid\n", "```\n", diagram.String())
}

// C52, C53, C54, C70, C84: the defaults, which keep heartbeats within a third of their timeout.
func TestLinkTiming(t *testing.T) {
	t.Parallel()
	require.Equal(t, 5*time.Second, fleet.DefaultLinkTiming().HeartbeatEvery)
	require.Equal(t, 15*time.Second, fleet.DefaultLinkTiming().HeartbeatTimeout)
	require.Equal(t, 30*time.Second, fleet.DefaultLinkTiming().StreamRequired)
	require.Equal(t, 30*time.Second, fleet.DefaultLinkTiming().Report)
	require.Equal(t, 5*time.Second, fleet.DefaultLinkTiming().DrainAck)
	require.Equal(t, 30*time.Second, fleet.DefaultLinkTiming().Idle)
	require.NoError(t, fleet.DefaultLinkTiming().Validate())
	slow := fleet.DefaultLinkTiming()
	slow.HeartbeatEvery = slow.HeartbeatTimeout / 2
	require.Equal(t, fleet.Invalid, fleet.KindOf(slow.Validate()))
	for _, change := range []func(*fleet.LinkTiming){
		func(timing *fleet.LinkTiming) { timing.StreamRequired = 0 },
		func(timing *fleet.LinkTiming) { timing.Report = 0 },
		func(timing *fleet.LinkTiming) { timing.DrainAck = -time.Second },
		func(timing *fleet.LinkTiming) { timing.HeartbeatEvery = 0 },
		func(timing *fleet.LinkTiming) { timing.Idle = time.Millisecond },
	} {
		none := fleet.DefaultLinkTiming()
		change(&none)
		require.Equal(t, fleet.Invalid, fleet.KindOf(none.Validate()), "%+v", none)
	}
}

// C77, C78: what no region takes at all.
func TestRegistrationIsRefused(t *testing.T) {
	t.Parallel()
	good := fleet.Registration{
		Provider: "vision-1", Namespace: "acme.vision", Executor: "10.0.0.7:9091", Modules: []fleet.ModuleOffer{{Name: "detect"}},
	}
	require.NoError(t, good.Validate())
	for name, row := range map[string]struct {
		change func(*fleet.Registration)
		kind   fleet.Kind
	}{
		"a provider without a name":      {func(r *fleet.Registration) { r.Provider = "" }, fleet.Invalid},
		"a namespace in capitals":        {func(r *fleet.Registration) { r.Namespace = "Acme" }, fleet.Invalid},
		"a namespace with an empty word": {func(r *fleet.Registration) { r.Namespace = "acme..vision" }, fleet.Invalid},
		"a reserved namespace":           {func(r *fleet.Registration) { r.Namespace = "stdlib" }, fleet.Denied},
		"below a reserved namespace":     {func(r *fleet.Registration) { r.Namespace = "stdlib.text" }, fleet.Denied},
		"modules without a namespace":    {func(r *fleet.Registration) { r.Namespace = "" }, fleet.Invalid},
		"an executor with a scheme":      {func(r *fleet.Registration) { r.Executor = "http://10.0.0.7:9091" }, fleet.Invalid},
		"an executor without a port":     {func(r *fleet.Registration) { r.Executor = "10.0.0.7" }, fleet.Invalid},
		"an executor at a word":          {func(r *fleet.Registration) { r.Executor = "10.0.0.7:grpc" }, fleet.Invalid},
		"an executor with a zero byte":   {func(r *fleet.Registration) { r.Executor = "a\x00b:9091" }, fleet.Invalid},
		"an executor with a space":       {func(r *fleet.Registration) { r.Executor = "a b:9091" }, fleet.Invalid},
		"a certificate for a line":       {func(r *fleet.Registration) { r.ExecutorTLS.ServerName = "a\nb" }, fleet.Invalid},
		"an executor at port 0":          {func(r *fleet.Registration) { r.Executor = "10.0.0.7:0" }, fleet.Invalid},
		"a group that is no name":        {func(r *fleet.Registration) { r.Group = "a/b" }, fleet.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good
			row.change(&r)
			require.Equal(t, row.kind, fleet.KindOf(r.Validate()))
		})
	}
	for _, name := range []fleet.ModuleName{"", "1st", "a-b", "a.b", fleet.ModuleName(strings.Repeat("x", 64))} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(name.Validate()), name)
	}
}
