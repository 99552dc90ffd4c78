package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestContext(t *testing.T) {
	t.Parallel()

	t.Run("is saved for its owner only and used from then on", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		s := newShell(t, nil)
		s.stdin = regionToken + "\n"
		got := s.ok("context", "set", "lab", "--address", r.server.URL, "--token", "-")
		require.NotContains(t, got.stdout, regionToken)
		info, err := os.Stat(s.env[envConfigFile])
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		dir, err := os.Stat(filepath.Dir(s.env[envConfigFile]))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
		require.Contains(t, s.ok("get", "sites").stdout, "plant-1")
		require.NotContains(t, s.ok("context", "list", "-o", "json").stdout, regionToken)
	})

	t.Run("never sends its token to another address", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, nil)
		s.ok("context", "set", "prod", "--address", "https://prod.example", "--token", "secret")
		c := &cli{process: s.process(os.Stdout, os.Stderr, nil)}
		s.env[envAddress] = "http://elsewhere.example"
		got, err := c.settle()
		require.NoError(t, err)
		require.Equal(t, settings{address: "http://elsewhere.example"}, got)
		c.flags.context = "prod"
		got, err = c.settle()
		require.NoError(t, err)
		require.Equal(t, settings{address: "https://prod.example", token: "secret"}, got)
		s.ok("context", "set", "prod", "--address", "https://new.example")
		got, err = c.settle()
		require.NoError(t, err)
		require.Equal(t, settings{address: "https://new.example"}, got)
	})

	t.Run("is chosen, listed and forgotten by name", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, nil)
		s.ok("context", "set", "a", "--address", "http://a.example", "--project", "line-a")
		s.ok("context", "set", "b", "--address", "http://b.example")
		s.ok("context", "use", "a")
		require.Regexp(t, `a +yes +- +http://a.example +line-a +no\nb +no `, s.ok("context", "list").stdout)
		s.ok("context", "delete", "a")
		require.Equal(t, "context/b\n", s.ok("context", "list", "-o", "name").stdout)
		require.Equal(t, exitNotFound, s.run("context", "use", "a").code)
		require.Equal(t, exitNotFound, s.run("get", "sites", "--context", "a").code)
		require.Equal(t, exitUsage, s.run("context", "set", "c").code)
		require.Equal(t, exitUsage, s.run("context", "set", "c", "--address", "no-scheme:80").code)
	})

	t.Run("warns when others may read the tokens", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, nil)
		s.ok("context", "set", "a", "--address", "http://a.example")
		require.NoError(t, os.Chmod(s.env[envConfigFile], 0o644))
		require.Contains(t, s.ok("context", "list").stderr, "chmod 600")
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := newShell(t, newRegion(t))
	require.Regexp(t, `^TOKEN +ID +ROLE .*\nshown-once +t1 +operator `, s.ok("token", "create", "--role", "operator").stdout)
	var token api.Token
	require.NoError(t, json.Unmarshal([]byte(s.ok("token", "create", "-o", "json").stdout), &token))
	require.Equal(t, "shown-once", token.Token)
	require.Equal(t, "token/t1\n", s.ok("token", "revoke", "t1", "-o", "name").stdout)
}

func TestArtifact(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	got := newShell(t, r).ok("artifact", "upload", write(t, "press.bin", "program"))
	require.Contains(t, got.stdout, sha256Of("program"))
	require.Contains(t, got.stderr, "7 B of 7 B")
	require.Equal(t, "program", r.uploaded("u1"))
	require.Equal(t, exitUsage, newShell(t, r).run("artifact", "upload", "does-not-exist").code)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var b build
	require.NoError(t, json.Unmarshal([]byte(newShell(t, nil).ok("version", "-o", "json").stdout), &b))
	require.NotEmpty(t, b.Version)
	require.NotEmpty(t, b.Go)
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	r := newRegion(t).plant1()
	r.declare("sites/plant-2", `{}`)
	r.declare("sites/plant-2/instances/furnace-2", `{}`)
	r.operations[op1] = fetched()
	s := newShell(t, r)
	for _, row := range []struct {
		typed []string
		want  string
	}{
		{[]string{"get", ""}, "organization\norganizations\nproject\nprojects\nservice\nservices\nsite\nsites\npool\npools\ntemplate\ntemplates\ninstance\ninstances\ndeployment\ndeployments\nregion\nregions\nfleet\nfleets\nnode\nnodes\nmodule\nmodules\noperation\noperations\nprovider\nproviders\nreplica\nreplicas\nrefusal\nrefusals\nconfig\n:4\n"},
		{[]string{"delete", "n"}, "organization\norganizations\nproject\nprojects\nservice\nservices\nsite\nsites\npool\npools\ntemplate\ntemplates\ninstance\ninstances\ndeployment\ndeployments\nregion\nregions\nfleet\nfleets\nreplica\nreplicas\n:4\n"},
		{[]string{"get", "instance", ""}, "plant-1/press-7\nplant-2/furnace-2\n:4\n"},
		{[]string{"deploy", "plant-2/"}, "plant-2/furnace-2\n:4\n"},
		{[]string{"deploy", "--site", ""}, "plant-1\nplant-2\n:4\n"},
		{[]string{"wait", ""}, "plant-1/press-7\nplant-2/furnace-2\n" + op1 + "\n:4\n"},
		{[]string{"get", "sites", "-o", ""}, "table\njson\nyaml\nname\n:4\n"},
	} {
		require.Equal(t, row.want, s.ok(append([]string{"__complete"}, row.typed...)...).stdout, "%v", row.typed)
	}
	require.Equal(t, ":4\n", newShell(t, nil).ok("__complete", "deploy", "").stdout)
	for _, name := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, s.ok("completion", name).stdout, "holdfast")
	}
}
