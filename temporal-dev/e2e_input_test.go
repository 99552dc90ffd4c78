//go:build slow

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// jsonText writes what a child reads.
func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// send makes one request as it is, without a client's help.
func (s *stack) send(t *testing.T, method, path, token string, body []byte) (int, api.Problem) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.doc.API+path, bytes.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var p api.Problem
	if res.StatusCode >= http.StatusBadRequest {
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"), "%s", text)
		require.NoError(t, json.Unmarshal(text, &p), "%s", text)
		require.Equal(t, res.StatusCode, p.Status)
	}
	return res.StatusCode, p
}

// stored counts all that a request could have left.
func (s *stack) stored(t *testing.T) int64 {
	t.Helper()
	n, err := s.count(t.Context(), `SELECT (SELECT count(*) FROM objects) + (SELECT count(*) FROM revisions)
		+ (SELECT count(*) FROM operations) + (SELECT count(*) FROM outbox) + (SELECT count(*) FROM deliveries)
		+ (SELECT count(*) FROM join_tokens) + (SELECT count(*) FROM api_tokens)`)
	require.NoError(t, err)
	return n
}

// N22, N26, N28, N30, N91, X19
func (s *stack) refusesBadInput(t *testing.T) {
	st := newStory(t, s, "plant-1", "press-7")
	s.asleep(t)
	before, starts := s.stored(t), st.witness.starts(t)
	const (
		instance = "/api/v1/sites/plant-1/instances/"
		marker   = "what-was-sent-is-not-repeated"
	)
	deep := `{"config":` + strings.Repeat(`{"a":`, 201) + "1" + strings.Repeat("}", 201) + "}"
	for _, c := range []struct {
		what, method, path, body string
		status                   int
		kind, field              string
	}{
		{"no JSON", "PUT", instance + "x", `{"config":`, 400, "invalid", ""},
		{"an empty body", "PUT", instance + "x", ``, 400, "invalid", ""},
		{"a list instead of an object", "PUT", instance + "x", `[]`, 400, "invalid", ""},
		{"an unknown member", "PUT", instance + "x", `{"config":{},"confg":"` + marker + `"}`, 400, "invalid", ""},
		{"no source", "PUT", instance + "x", `{}`, 400, "invalid", "/"},
		{"two sources", "PUT", instance + "x", `{"config":{},"template":"t"}`, 400, "invalid", "/"},
		{"a name in capitals", "PUT", instance + "Press", `{"config":{}}`, 400, "invalid", "name"},
		{"a name of 64 letters", "PUT", instance + strings.Repeat("x", 64), `{"config":{}}`, 400, "invalid", "name"},
		{"a key twice", "PUT", instance + "x", `{"config":{"a":1,"a":"` + marker + `"}}`, 400, "invalid", "/config/a"},
		{"a number beyond all doubles", "PUT", instance + "x", `{"config":{"n":1e400}}`, 400, "invalid", "/config/n"},
		{"a number that would become 0", "PUT", instance + "x", `{"config":{"n":1e-400}}`, 400, "invalid", "/config/n"},
		{"a lone surrogate", "PUT", instance + "x", `{"config":{"s":"\ud800"}}`, 400, "invalid", "/config/s"},
		{"too deep", "PUT", instance + "x", deep, 400, "invalid", ""},
		{"an unknown durability", "PUT", instance + "x", `{"config":{},"durability":"maybe"}`, 400, "invalid", "/durability"},
		{"a command without a program", "PUT", instance + "x", `{"config":{},"run":{"command":[]}}`, 400, "invalid", "/run/command"},
		{"an environment of ours", "PUT", instance + "x", `{"config":{},"run":{"command":["a"],"env":{"HOLDFAST_X":"1"}}}`, 400, "invalid", "/run/env"},
		{"a hash that is none", "PUT", instance + "x", `{"artifact":"abc"}`, 400, "invalid", "/artifact"},
		{"an artifact that nobody uploaded", "PUT", instance + "x", `{"artifact":"` + strings.Repeat("ab", 32) + `"}`, 404, "not_found", ""},
		{"a template that is not there", "PUT", instance + "x", `{"template":"missing"}`, 404, "not_found", "/template"},
		{"a site that is not there", "PUT", "/api/v1/sites/nowhere/instances/x", `{"config":{}}`, 404, "not_found", "site"},
		{"an instance that is not there", "POST", instance + "missing/deploy", ``, 404, "not_found", "instance"},
		{"a rollback to nowhere", "POST", instance + "press-7/rollback", `{"revision":99}`, 404, "not_found", "/revision"},
		{"a rollback before the first", "POST", instance + "press-7/rollback", ``, 422, "illegal_state", ""},
		{"two active nodes", "PUT", "/api/v1/sites/plant-9", `{"nodes":[{"name":"a","role":"active"},{"name":"b","role":"active"}]}`, 400, "invalid", "/nodes"},
		{"a wait that is none", "GET", "/api/v1/operations/" + strings.Repeat("a", 32) + "?wait=long", ``, 400, "invalid", "wait"},
		{"an operation that is not there", "GET", "/api/v1/operations/" + strings.Repeat("a", 32), ``, 404, "not_found", ""},
		{"a delivery that is not there", "GET", "/api/internal/deployments/" + strings.Repeat("a", 32) + "/config", ``, 404, "not_found", ""},
		{"a path that is not there", "GET", "/api/v1/nothing", ``, 404, "not_found", ""},
		{"a method that is not there", "PATCH", instance + "press-7", ``, 405, "invalid", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			status, p := s.send(t, c.method, c.path, s.doc.Token, []byte(c.body))
			require.Equal(t, c.status, status, "%+v", p)
			require.Equal(t, "holdfast:problems/"+c.kind, p.Type, "%+v", p)
			if c.field != "" {
				require.Equal(t, c.field, p.Field, "%+v", p)
			}
			require.NotEmpty(t, p.Detail)
			require.NotContains(t, jsonText(t, p), marker)
		})
	}
	t.Run("no token, and a wrong one", func(t *testing.T) {
		for _, token := range []string{"", "wrong"} {
			status, p := s.send(t, "PUT", instance+"x", token, []byte(`{"config":{}}`))
			require.Equal(t, http.StatusUnauthorized, status, "%+v", p)
			require.Equal(t, "holdfast:problems/unauthenticated", p.Type)
		}
	})
	require.Equal(t, before, s.stored(t), "nothing is stored, nothing is started")
	for _, node := range pair("plant-1") {
		held, err := s.stores.currents(t.Context(), node)
		require.NoError(t, err)
		require.Len(t, held, 1)
	}
	require.Equal(t, starts, st.witness.starts(t))
}
