package decode

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	examplePort = `{"name": "http", "port": 80}`
	exampleSpec = `{"image": "nginx:1.27", "ports": [` + examplePort + `], "replicas": 3}`
	exampleFlat = `what a Kubernetes Deployment has in spec.template and its container is directly in the spec here; for example ` + exampleSpec
	exampleKube = `this looks like a Kubernetes manifest; write for example {"kind": "Deployment", "name": "web", "spec": ` + exampleSpec + `}`
	exampleTest = `write for example "health": {"type": "http", "path": "/health", "interval": 10, "timeout": 5}`
)

// insteadOfFields are what to write instead of fields that other products have. The first row of that name counts whose
// object has the field beside, if it names one.
var insteadOfFields = []struct {
	name, beside, hint string
}{
	{"apiVersion", "kind", exampleKube},
	{"apiVersion", "", exampleFlat},
	{"metadata", "kind", "write name, project and labels at the top level: " + `{"kind": "Deployment", "name": "web", "labels": {"app": "web"}, "spec": {}}`},
	{"metadata", "", "the name is in the path; write labels at the top level"},
	{"data", "kind", `configurations are objects of kind Instance: {"kind": "Instance", "name": "press-7", "site": "plant-1", "spec": {"config": {}}}`},
	{"template", "", exampleFlat},
	{"selector", "", "a deployment selects its replicas itself; omit selector"},
	{"containers", "", exampleFlat},
	{"initContainers", "", `write for example "preStart": [["/bin/prepare", "--once"]]`},
	{"livenessProbe", "", exampleTest},
	{"startupProbe", "", `write for example "startup": {"deadline": 60}`},
	{"readinessProbe", "", strings.Replace(exampleTest, "health", "readiness", 1)},
	{"httpGet", "", exampleTest},
	{"tcpSocket", "", strings.Replace(exampleTest, `"http", "path": "/health"`, `"tcp"`, 1)},
	{"periodSeconds", "", `write for example "interval": 10`},
	{"timeoutSeconds", "", `write for example "timeout": 5`},
	{"failureThreshold", "", `write for example "unhealthy_threshold": 3`},
	{"successThreshold", "expected_status", `write for example "healthy_threshold": 1`},
	{"initialDelaySeconds", "", `write for example "startup": {"deadline": 60}: until then failures do not count`},
	{"limits", "", `write for example "resources": {"cpu": 0.5, "memory": "512Mi"}`},
	{"requests", "", `write for example "resources": {"cpu": 0.5, "memory": "512Mi"}`},
	{"containerPort", "", "write for example " + examplePort},
	{"terminationGracePeriodSeconds", "", `write for example "stopSeconds": 30`},
	{"nodeSelector", "", `write for example "placement": {"labels": {"zone": "a"}}`},
}

func insteadOfField(name string, allowed []string) string {
	for _, row := range insteadOfFields {
		if row.name == name && (row.beside == "" || slices.Contains(allowed, row.beside)) {
			return row.hint
		}
	}
	return ""
}

// given is a value of another type than its place wants.
type given struct {
	place  []string
	value  jsontext.Value
	wanted reflect.Type
}

// insteadOfValues are ordered rules: the first that applies says what is allowed and what to write. An empty want is
// the word for the type.
var insteadOfValues = []struct {
	name string
	want string
	hint func(given) string // "" where the rule does not apply
}{
	{"port of a check", "the name of one of ports", portOfCheck},
	{"cores", "a number of cores", cores},
	{"seconds", "a number of seconds", seconds},
	{"number in quotes", "", unquoted},
	{"truth value", "", truth},
	{"port", "an object", port},
	{"environment", "an object", environment},
	{"command", "an array of strings", command},
	{"text", "", text},
}

func insteadOfValue(g given) (want, hint string) {
	for _, row := range insteadOfValues {
		if hint := row.hint(g); hint != "" {
			if row.want == "" {
				return wordFor(g.wanted), hint
			}
			return row.want, hint
		}
	}
	return wordFor(g.wanted), ""
}

func (g given) last() string { return g.back(1) }

// back is the nth token of the place from its end.
func (g given) back(n int) string {
	if len(g.place) < n {
		return ""
	}
	return g.place[len(g.place)-n]
}

func (g given) is(kinds ...reflect.Kind) bool {
	t := g.wanted
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && slices.Contains(kinds, t.Kind())
}

func (g given) number() bool {
	return g.is(reflect.Float64, reflect.Float32, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint64)
}

// text is the value of a JSON string.
func (g given) text() (string, bool) {
	if g.value.Kind() != jsontext.KindString {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, g.value)
	return string(s), err == nil
}

// portOfCheck: a check names a port, so that the number is said once.
func portOfCheck(g given) string {
	if g.last() != "port" || !slices.Contains([]string{"health", "readiness"}, g.back(2)) || g.value.Kind() != jsontext.KindNumber {
		return ""
	}
	return fmt.Sprintf(`write "port": "http" here, and "ports": [{"name": "http", "port": %s}] beside %s`, g.value, g.back(2))
}

// cores reads what Kubernetes writes as thousandths of a core.
func cores(g given) string {
	s, ok := g.text()
	if !ok || g.last() != "cpu" {
		return ""
	}
	thousandths, inThousandths := strings.CutSuffix(s, "m")
	n, err := strconv.ParseFloat(thousandths, 64)
	switch {
	case err != nil || math.IsInf(n, 0) || math.IsNaN(n):
		return "write for example 0.5"
	case inThousandths:
		n /= 1000
	}
	return "write " + strconv.FormatFloat(n, 'f', -1, 64)
}

// seconds reads what Go and others write as a duration.
func seconds(g given) string {
	s, ok := g.text()
	if !ok || !g.number() || !ofTime(g.last()) {
		return ""
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return ""
	}
	n := d.Seconds()
	if !g.is(reflect.Float64, reflect.Float32) {
		n = math.Ceil(n)
	}
	return "write " + strconv.FormatFloat(n, 'f', -1, 64)
}

// ofTime reports whether a field is a time in seconds.
func ofTime(name string) bool {
	return slices.ContainsFunc([]string{"interval", "timeout", "deadline", "Seconds", "_time", "_delay"}, func(end string) bool {
		return strings.HasSuffix(name, end)
	})
}

func unquoted(g given) string {
	s, ok := g.text()
	if !ok || !g.number() || jsontext.Value(s).Kind() != jsontext.KindNumber || !jsontext.Value(s).IsValid() {
		return ""
	}
	return "write " + s + ", without quotes"
}

func truth(g given) string {
	s, ok := g.text()
	if !ok || !g.is(reflect.Bool) {
		return ""
	}
	switch strings.ToLower(s) {
	case "yes", "on", "y", "true":
		return "write true, without quotes"
	case "no", "off", "n", "false":
		return "write false, without quotes"
	}
	return ""
}

func port(g given) string {
	if g.back(2) != "ports" || !g.is(reflect.Struct) {
		return ""
	}
	if g.value.Kind() == jsontext.KindNumber {
		return fmt.Sprintf(`write {"name": "http", "port": %s}`, g.value)
	}
	return "write for example " + examplePort
}

func environment(g given) string {
	if g.last() != "env" || g.value.Kind() != jsontext.KindBeginArray {
		return ""
	}
	return `write {"NAME": "value"}, not a list of names and values`
}

func command(g given) string {
	if !slices.Contains([]string{"command", "args", "preStart"}, g.last()) && g.back(2) != "preStart" || !g.is(reflect.Slice) {
		return ""
	}
	return `write for example ["/usr/bin/server", "--port", "${PORT}"], each argument by itself`
}

// text: YAML reads 8080, 1.10 and yes of a text without quotes as something else.
func text(g given) string {
	if !g.is(reflect.String) || !slices.Contains([]jsontext.Kind{jsontext.KindNumber, jsontext.KindTrue, jsontext.KindFalse}, g.value.Kind()) {
		return ""
	}
	return "put it in quotes"
}
