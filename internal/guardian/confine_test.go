package guardian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// other is a user of whom the machine has nothing.
const other = 2_000_065_000

// confined is a command of another user in a data directory that only root can pass.
func confined(t *testing.T, script string) (spec Spec, data string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	data = t.TempDir() // its parent has mode 0700
	spec = shell(t, script)
	spec.Dir, spec.Confinement = filepath.Join(data, "instances", "line-7"), Confinement{UID: other, Hide: data}
	require.NoError(t, os.MkdirAll(spec.Dir, 0o700))
	require.NoError(t, os.Chown(spec.Dir, other, other))
	require.NoError(t, os.WriteFile(filepath.Join(data, "node.key"), []byte("secret"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(data, "instances", "other"), 0o755))
	spec.Run.Env = map[string]string{"DATA": data}
	return spec, data
}

// X10: a command of another user has its directory by the path that it is told, and nothing else of what is hidden.
func TestConfined(t *testing.T) {
	t.Parallel()
	t.Run("sees its directory alone and gains nothing", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, data := confined(t, `
			echo "user=$(id -u) groups=$(id -G)"; echo "at=$(pwd)"
			ls "$DATA" "$DATA/instances" 2>/dev/null && echo LISTED
			[ -e "$DATA/instances/other" ] && echo OTHER
			cat "$DATA/node.key" 2>/dev/null && echo READ
			echo mine >"$PWD/file" && echo "wrote=$(cat "$DATA/instances/line-7/file")"
			grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/self/status
			echo opened >/dev/stdout
			cat /proc/$PPID/environ 2>/dev/null && echo ENVIRON
			kill -9 $PPID 2>/dev/null && echo KILLED
			echo end; sleep 1000`)
		st := start(t, r, spec)
		require.Equal(t, other, st.UID)
		said := printed(t, r, "end\n")
		for _, want := range []string{
			"user=2000065000 groups=2000065000\n", "at=" + spec.Dir + "\n", "wrote=mine\n",
			"NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "opened\n",
		} {
			require.Contains(t, said, want)
		}
		for _, never := range []string{"LISTED", "OTHER", "secret", "READ", "ENVIRON", "KILLED"} {
			require.NotContains(t, said, never)
		}
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		cleared(t, r)
		left, err := os.ReadDir(data)
		require.NoError(t, err)
		require.Len(t, left, 2, "nothing is mounted outside")
	})
	t.Run("dies with its guardian", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, _ := confined(t, "echo ready; exec sleep 1000")
		st := start(t, r, spec)
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.PID) }, "the command outlives its guardian")
	})
	t.Run("a program that takes no SIGTERM is killed", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, _ := confined(t, "trap '' TERM; (trap '' TERM; setsid sleep 1000) & echo ready; while :; do sleep 0.1; done")
		spec.Run.StopSeconds = 0.2
		start(t, r, spec)
		printed(t, r, "ready")
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		cleared(t, r)
	})
	t.Run("is refused where it would see what is hidden", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "true")
		spec.Confinement = Confinement{UID: other, Hide: filepath.Join(spec.Dir, "below")}
		_, err := r.Start(t.Context(), spec)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}
