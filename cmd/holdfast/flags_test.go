package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// ownWants are those of our own types of flags.
var ownWants = map[string]string{
	"FORMAT": "table, json, yaml or name", "KEY=VALUE": "KEY=VALUE", "BYTES": "bytes, or a number with Ki, Mi, Gi or Ti, for example 512Mi",
	"uid|none": "uid or none", "FIRST-LAST": "FIRST-LAST, both from 1 to 2147483647",
}

// X19: each flag of each command is refused with its name, what was given and what is allowed.
func TestFlagsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	flags := 0
	refused := func(path []string, flag string) string {
		got := s.run(append(path, flag)...)
		require.Equal(t, exitUsage, got.code, "%v %s", path, flag)
		require.Empty(t, got.stdout, "%v %s", path, flag)
		return got.stderr
	}
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		require.Contains(t, refused(path, "--nonsense"), `unknown flag: --nonsense; see "`+cmd.CommandPath()+` --help"`)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"string", "stringArray", "stringSlice"}, f.Value.Type()) {
				return
			}
			want, known := flagWants[f.Value.Type()]
			if !known {
				want, known = ownWants[f.Value.Type()]
			}
			require.True(t, known, f.Value.Type())
			flags++
			require.Contains(t, refused(path, "--"+f.Name+"=perhaps"), "error: invalid: invalid --"+f.Name+` "perhaps": want `+want)
		})
		for _, sub := range cmd.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	root := newRootCommand(&cli{process: s.process(nil, nil, nil)})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { root.Flags().AddFlag(f) })
	walk(root, nil)
	require.Greater(t, flags, 60)

	for flag, want := range map[string]string{
		"--limit=-1": "a whole number, 0 or more", "--timeout=-5s": "a duration, for example 90s, 5m or 2h",
	} {
		name, value, _ := strings.Cut(flag, "=")
		require.Contains(t, refused([]string{"deliveries", "plant-1/press-7"}, flag), "invalid "+name+` "`+value+`": want `+want)
	}
	require.Contains(t, refused([]string{"scale", "web"}, "--replicas=-1"), `invalid --replicas "-1": want a whole number, 0 or more`)
	for _, args := range [][]string{{"token", "create"}, {"join-token", "create", "--site", "plant-1", "--node", "plant-1-a"}} {
		require.Contains(t, refused(args, "--ttl=500ms"), `invalid --ttl "500ms": want at least 1s`, "0 s would be no end")
	}
}

// X19: --project is refused where it would be ignored, and what uses it exists.
func TestProjectIsNotIgnored(t *testing.T) {
	t.Parallel()
	s := newShell(t, newRegion(t).plant1())
	for _, args := range [][]string{{"scale", "web", "--replicas", "3"}, {"explain", "deployment", "web"}, {"logs", "deployment/web"}, {"deploy", "plant-1/press-7"}} {
		got := s.run(append(args, "--project", "la")...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.stderr, `"holdfast `+args[0]+`" does not use --project`)
	}
	root := newRootCommand(&cli{process: s.process(nil, nil, nil)})
	for _, path := range inProject {
		cmd, _, err := root.Find(strings.Fields(path))
		require.NoError(t, err)
		require.Equal(t, "holdfast "+path, cmd.CommandPath())
	}
}

// S134, N13: a deployment goes back by another command than an instance.
func TestRollbackSaysByWhichCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t, newRegion(t).plant1())
	for _, name := range []string{"web", "deployment/web"} {
		got := s.run("rollback", name)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, `use SITE/NAME, or for a deployment "holdfast rollout rollback web"`)
	}
	require.Contains(t, s.ok("rollout", "undo", "--help").stdout, "rollback NAME...")
}
