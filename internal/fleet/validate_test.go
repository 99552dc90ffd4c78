package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19
func TestValidateName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "press-7", "0", strings.Repeat("x", 63)} {
		require.NoError(t, fleet.ValidateName("name", name), name)
	}
	for _, name := range []string{"", "-a", "a-", "A", "a_b", "a.b", "ä", "a\n", strings.Repeat("x", 64)} {
		err := fleet.ValidateName("name", name)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%q", name)
		var e *fleet.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "name", e.Field)
		require.NotEmpty(t, e.Hint)
	}
}

// X19: each refusal names the place in the spec.
func TestValidateSpecs(t *testing.T) {
	t.Parallel()
	config := &fleet.Content{Kind: fleet.ContentJSON, Hash: "h"}
	instance := func(change func(*fleet.InstanceSpec)) error {
		s := fleet.InstanceSpec{Config: config, Durability: fleet.DurabilitySync}
		change(&s)
		return s.Validate()
	}
	run := func(r fleet.Run) error { return instance(func(s *fleet.InstanceSpec) { s.Run = &r }) }
	site := func(nodes ...fleet.SiteNode) error { return fleet.SiteSpec{Nodes: nodes}.Validate() }
	active, standby := fleet.SiteNode{Name: "a", Role: fleet.RoleActive}, fleet.SiteNode{Name: "b", Role: fleet.RoleStandby}
	for _, c := range []struct {
		name, field string
		err         error
	}{
		{"no source", "/", instance(func(s *fleet.InstanceSpec) { s.Config = nil })},
		{"two sources", "/", instance(func(s *fleet.InstanceSpec) { s.Template = "t" })},
		{"overrides of nothing", "/overrides", instance(func(s *fleet.InstanceSpec) { s.Overrides = config })},
		{"unknown durability", "/durability", instance(func(s *fleet.InstanceSpec) { s.Durability = "twice" })},
		{"no command", "/run/command", run(fleet.Run{})},
		{"a NUL", "/run/command", run(fleet.Run{Command: []string{"a\x00b"}})},
		{"unknown signal", "/run/signal", run(fleet.Run{Command: []string{"a"}, Signal: "SIGKILL"})},
		{"unknown onChange", "/run/onChange", run(fleet.Run{Command: []string{"a"}, OnChange: "never"})},
		{"a reserved name", "/run/env", run(fleet.Run{Command: []string{"a"}, Env: map[string]string{"HOLDFAST_EPOCH": "9"}})},
		{"negative stop", "/run/stopSeconds", run(fleet.Run{Command: []string{"a"}, StopSeconds: -1})},
		{"no active", "/nodes", site(standby)},
		{"two actives", "/nodes", site(active, fleet.SiteNode{Name: "c", Role: fleet.RoleActive})},
		{"a node twice", "/nodes/1/name", site(active, active)},
		{"an unknown role", "/nodes/0/role", site(fleet.SiteNode{Name: "a", Role: "king"})},
		{"a mark that is no pointer", "/secrets/1", instance(func(s *fleet.InstanceSpec) { s.Secrets = []string{"/a/~0~1", "a"} })},
		{"a mark with a wrong escape", "/secrets/0", instance(func(s *fleet.InstanceSpec) { s.Secrets = []string{"/a~"} })},
		{"too many marks", "/secrets", instance(func(s *fleet.InstanceSpec) { s.Secrets = make([]string, 101) })},
		{"a mark of 1 KiB and more", "/secrets/0", instance(func(s *fleet.InstanceSpec) { s.Secrets = []string{"/" + strings.Repeat("x", 1024)} })},
		{"paths of an artifact", "/secrets", instance(func(s *fleet.InstanceSpec) { s.Config, s.Artifact, s.Secrets = nil, config, []string{"/a"} })},
		{"an empty name", "/secretEnv/0", instance(func(s *fleet.InstanceSpec) { s.SecretEnv = []string{""} })},
		{"a template's mark that is no pointer", "/secrets/0", fleet.TemplateSpec{Secrets: []string{"a"}}.Validate("t")},
		{"itself", "/compositions/0", fleet.TemplateSpec{Compositions: []fleet.TemplatePin{{Name: "t"}}}.Validate("t")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var e *fleet.Error
			require.ErrorAs(t, c.err, &e)
			require.Equal(t, fleet.Invalid, e.Kind)
			require.Equal(t, c.field, e.Field)
		})
	}
	require.NoError(t, site(active, standby))
	require.NoError(t, run(fleet.Run{Command: []string{"sleep", "1"}, OnChange: fleet.OnChangeSignal, Signal: "SIGHUP"}))
}

// X1, N85
func TestVersionOrder(t *testing.T) {
	t.Parallel()
	v := func(era, n int64) fleet.Version { return fleet.Version{Era: era, Revision: n} }
	require.True(t, v(2, 1).Newer(v(1, 9)), "an era outranks every number before it")
	require.True(t, v(1, 2).Newer(v(1, 1)))
	require.False(t, v(1, 1).Newer(v(1, 1)))
	require.Zero(t, v(3, 3).Compare(v(3, 3)))
}

func TestErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := fleet.Errorf(fleet.Unavailable, "ask: %w", cause).At("node").WithHint("try again")
	require.ErrorIs(t, err, cause)
	require.Equal(t, "node: ask: cause (try again)", err.Error())
	require.Equal(t, fleet.Internal, fleet.KindOf(cause))
}

// X10
func TestSecretMarks(t *testing.T) {
	t.Parallel()
	config := &fleet.Content{Kind: fleet.ContentJSON}
	s := fleet.InstanceSpec{
		Config: config, Durability: fleet.DurabilitySync, Secrets: []string{"", "/", "/a~1b/0/~0~01", "/" + strings.Repeat("x", 1023)},
		SecretEnv: []string{"A"},
	}
	require.NoError(t, s.Validate())
	now := fleet.InstanceSpec{Secrets: []string{"/a", "/b"}, SecretEnv: []string{"A", "B"}}
	earlier := fleet.InstanceSpec{Config: config, Secrets: []string{"/b"}}
	kept := earlier.KeepMarks(now)
	require.Equal(t, []string{"/b", "/a"}, kept.Secrets)
	require.Equal(t, []string{"A", "B"}, kept.SecretEnv)
	require.Equal(t, []string{"/b"}, earlier.Secrets, "a revision never changes")
	require.Empty(t, fleet.InstanceSpec{Artifact: config}.KeepMarks(now).Secrets)
}
