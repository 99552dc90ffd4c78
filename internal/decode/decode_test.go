package decode_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19: a mistake gets its place, what is allowed and, where people often write something else, what to write instead.
// None of them names a type of Go.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const spec = `{"image": "nginx:1.27", "ports": [{"name": "http", "port": 80}], "replicas": 3}`
	type row struct{ doc, at, says, hint string }
	check := func(t *testing.T, into any, r row) {
		t.Helper()
		err := decode.Strict([]byte(r.doc), into)
		var e *fleet.Error
		require.True(t, errors.As(err, &e), "%v", err)
		require.Equal(t, fleet.Invalid, e.Kind)
		require.Equal(t, row{r.doc, r.at, r.says, r.hint}, row{r.doc, e.Field, e.Message, e.Hint})
		require.NotRegexp(t, `\b(Go|struct|float64|int64|fleet|api|unmarshal)\b`, err.Error())
	}

	for name, r := range map[string]row{
		"the port of a check":    {`{"health":{"port":18125}}`, "/health/port", "invalid value: must be the name of one of ports", `write "port": "http" here, and "ports": [{"name": "http", "port": 18125}] beside health`},
		"that of readiness":      {`{"readiness":{"port":80}}`, "/readiness/port", "invalid value: must be the name of one of ports", `write "port": "http" here, and "ports": [{"name": "http", "port": 80}] beside readiness`},
		"a duration":             {`{"health":{"interval":"10s"}}`, "/health/interval", "invalid value: must be a number of seconds", "write 10"},
		"a longer one":           {`{"strategy":{"progress_deadline":"1h30m"}}`, "/strategy/progress_deadline", "invalid value: must be a number of seconds", "write 5400"},
		"a part of a second":     {`{"health":{"timeout":"500ms"}}`, "/health/timeout", "invalid value: must be a number of seconds", "write 0.5"},
		"of whole seconds":       {`{"stopSeconds":"1500ms"}`, "/stopSeconds", "invalid value: must be a number of seconds", "write 2"},
		"a duration of nothing":  {`{"health":{"healthy_threshold":"10s"}}`, "/health/healthy_threshold", "invalid value: must be a whole number", ""},
		"thousandths of a core":  {`{"resources":{"cpu":"100m"}}`, "/resources/cpu", "invalid value: must be a number of cores", "write 0.1"},
		"whole cores":            {`{"resources":{"cpu":"2"}}`, "/resources/cpu", "invalid value: must be a number of cores", "write 2"},
		"no cores":               {`{"resources":{"cpu":"all"}}`, "/resources/cpu", "invalid value: must be a number of cores", "write for example 0.5"},
		"a number in quotes":     {`{"stopSeconds":"30"}`, "/stopSeconds", "invalid value: must be a whole number", "write 30, without quotes"},
		"a part of a whole":      {`{"stopSeconds":1.5}`, "/stopSeconds", "invalid value: must be a whole number", ""},
		"yes":                    {`{"memoryKeepsVersion":"yes"}`, "/memoryKeepsVersion", "invalid value: must be true or false", "write true, without quotes"},
		"no":                     {`{"memoryKeepsVersion":"No"}`, "/memoryKeepsVersion", "invalid value: must be true or false", "write false, without quotes"},
		"a plain port":           {`{"ports":[8080]}`, "/ports/0", "invalid value: must be an object", `write {"name": "http", "port": 8080}`},
		"a mapped port":          {`{"ports":["80:8080"]}`, "/ports/0", "invalid value: must be an object", `write for example {"name": "http", "port": 80}`},
		"a list of variables":    {`{"env":[{"name":"A","value":"secret"}]}`, "/env", "invalid value: must be an object", `write {"NAME": "value"}, not a list of names and values`},
		"a number as a variable": {`{"env":{"A":8080}}`, "/env/A", "invalid value: must be a string", "put it in quotes"},
		"a truth value as one":   {`{"env":{"A":true}}`, "/env/A", "invalid value: must be a string", "put it in quotes"},
		"a number as a label":    {`{"labels":{"tier":1}}`, "/labels/tier", "invalid value: must be a string", "put it in quotes"},
		"a line as a command":    {`{"command":"sleep 10"}`, "/command", "invalid value: must be an array of strings", `write for example ["/usr/bin/server", "--port", "${PORT}"], each argument by itself`},
		"a command before":       {`{"preStart":["sleep 10"]}`, "/preStart/0", "invalid value: must be an array of strings", `write for example ["/usr/bin/server", "--port", "${PORT}"], each argument by itself`},
		"an unknown field":       {`{"resources":{"gpu":1}}`, "/resources/gpu", "unknown field; use cpu, memory or gpus", ""},
		"a field of Kubernetes":  {`{"resources":{"limits":{"cpu":1}}}`, "/resources/limits", "unknown field; use cpu, memory or gpus", `write for example "resources": {"cpu": 0.5, "memory": "512Mi"}`},
		"a container's port":     {`{"ports":[{"containerPort":80}]}`, "/ports/0/containerPort", "unknown field; use name or port", `write for example {"name": "http", "port": 80}`},
		"a probe of Kubernetes":  {`{"health":{"periodSeconds":5}}`, "/health/periodSeconds", "unknown field; use type, port, path, method, expected_status, interval, timeout, unhealthy_threshold or healthy_threshold", `write for example "interval": 10`},
		"a misspelt bound":       {`{"replicas":{"most":3}}`, "/replicas/most", "unknown field; use min, max or initial", ""},
		"no amount of memory":    {`{"resources":{"memory":"1PB"}}`, "/resources/memory", `invalid amount of memory "1PB": want bytes, or a text with Ki, Mi, Gi, Ti, k, M, G or T`, `for example "512Mi"`},
		"a doubled key":          {`{"image":"a","image":"b"}`, "/image", "duplicate key", "keep one of the two"},
		"a comma too many":       {`{"image":"a",}`, "", "malformed JSON at byte 12", "leave out the comma after the last member"},
		"single quotes":          {`{'image':"a"}`, "", "malformed JSON at byte 1", "write names and texts in double quotes"},
		"a name without quotes":  {`{image:"a"}`, "", "malformed JSON at byte 1", "write names and texts in double quotes"},
		"a number that is none":  {`{"stopSeconds":NaN}`, "/stopSeconds", "malformed JSON at byte 15", "JSON has no such number: use null, or a text"},
		"a leading zero":         {`{"stopSeconds":08}`, "", "malformed JSON at byte 16", "a number has no leading zero: leave it out, or quote what is text"},
		"a bracket of another":   {`{"image":"a"]`, "", "malformed JSON at byte 12", "look for a comma, quote or bracket that is missing or too many there, or before it"},
		"a byte order mark":      {"\xef\xbb\xbf{}", "", "the JSON begins with a byte order mark (BOM)", "write plain JSON in UTF-8, without a byte order mark and comments"},
		"a list for the whole":   {`[]`, "/", "invalid value: must be an object", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, &api.DeploymentPut{}, r)
		})
	}

	t.Run("a Kubernetes manifest", func(t *testing.T) {
		t.Parallel()
		const fields = "unknown field; use kind, name, site, project, service, labels or spec"
		check(t, &api.Manifest{}, row{
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{}}`, "/apiVersion", fields,
			`this looks like a Kubernetes manifest; write for example {"kind": "Deployment", "name": "web", "spec": ` + spec + `}`,
		})
		check(t, &api.Manifest{}, row{
			`{"kind":"Deployment","metadata":{"name":"web"}}`, "/metadata", fields,
			`write name, project and labels at the top level: {"kind": "Deployment", "name": "web", "labels": {"app": "web"}, "spec": {}}`,
		})
		const flat = "what a Kubernetes Deployment has in spec.template and its container is directly in the spec here; for example " + spec
		for _, doc := range []string{`{"template":{"spec":{}}}`, `{"containers":[]}`, `{"apiVersion":"apps/v1"}`} {
			err := decode.Strict([]byte(doc), &api.DeploymentPut{})
			require.ErrorContains(t, err, flat)
		}
	})

	t.Run("what it suggests is accepted", func(t *testing.T) {
		t.Parallel()
		var put api.DeploymentPut
		require.NoError(t, decode.Strict([]byte(spec), &put))
		require.NoError(t, decode.Strict([]byte(`{"kind": "Deployment", "name": "web", "spec": `+spec+`}`), &api.Manifest{}))
		require.NoError(t, decode.Strict([]byte(`{"health": {"type": "http", "path": "/health", "interval": 10, "timeout": 5}}`), &put))
		require.NoError(t, decode.Strict([]byte(`{"readiness": {"type": "tcp", "interval": 10, "timeout": 5}, "startup": {"deadline": 60}}`), &put))
		require.NoError(t, decode.Strict([]byte(`{"placement": {"labels": {"zone": "a"}}, "preStart": [["/bin/prepare", "--once"]]}`), &put))
	})

	t.Run("malformed", func(t *testing.T) {
		t.Parallel()
		for _, doc := range []string{`{`, `{"image":}`, `{"image":"\ud800"}`, "{} {}"} {
			err := decode.Strict([]byte(doc), &api.DeploymentPut{})
			require.Equal(t, fleet.Invalid, fleet.KindOf(err), doc)
		}
	})
}
