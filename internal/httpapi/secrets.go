package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// secretsOf collects what is marked in the config of a revision: by the spec that it was
// released from, by the spec of now, and by their templates, as pinned and as they are now.
// So a mark that is made later holds for what is already deployed.
func (s *server) secretsOf(ctx context.Context, o fleet.Object, revision int64) ([]string, error) {
	released, err := s.store.SpecOf(ctx, o.ObjectKey, revision)
	if err != nil {
		return nil, err
	}
	var now fleet.InstanceSpec
	if err := json.Unmarshal(o.Spec, &now); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", o.ObjectKey, err)
	}
	pointers := append(released.Secrets, now.Secrets...)
	c := &chain{s: s, path: map[fleet.TemplatePin]bool{}}
	for _, spec := range []fleet.InstanceSpec{released, now} {
		if spec.Template == "" {
			continue
		}
		if _, err := c.add(ctx, fleet.TemplatePin{Name: spec.Template, Generation: spec.TemplateGeneration}); err != nil {
			return nil, err
		}
		if released.Template == now.Template && released.TemplateGeneration == now.TemplateGeneration {
			break
		}
		c.layers = nil // of the other composition
	}
	slices.Sort(c.templates)
	for _, name := range slices.Compact(c.templates) {
		current, _, err := s.store.TemplateSpec(ctx, name, 0)
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // deleted since
			return nil, err
		}
		pointers = append(pointers, current.Secrets...)
	}
	return append(pointers, c.secrets...), nil
}

// serveRedacted sends a config without the values that the pointers name.
func (s *server) serveRedacted(w http.ResponseWriter, r *http.Request, c fleet.Content, pointers []string) error {
	body, err := s.store.OpenBody(r.Context(), c.Hash)
	if err != nil {
		return err
	}
	var hidden []span
	// The longest string may be the whole body: it counts against what is read at once.
	err = s.flatten.Do(r.Context(), c.Size, func() error {
		hidden, err = findSecrets(body, pointers)
		return err
	})
	if err != nil {
		return err
	}
	view := newRedacted(body, body.Size(), hidden)
	serve.Describe(w.Header(), fleet.Content{Kind: c.Kind, Size: view.size})
	w.Header().Set("Holdfast-Redacted", strconv.Itoa(len(hidden)))
	w.Header().Set("ETag", serve.Quoted(view.tag(c.Hash)))
	http.ServeContent(s.Rolling(w, func(int) {}), r, "", time.Time{}, view)
	return nil
}

// shown is how an object reads for the caller of a request.
func shown(ctx context.Context, o fleet.Object) api.Object {
	view := ViewOf(o)
	if serve.CallOf(ctx).Hides() {
		view.Spec = RedactSpec(view.Spec)
	}
	return view
}

// RedactSpec hides the environment values that a spec marks as secret. Paths of its config
// need nothing here: specs hold bodies by hash.
func RedactSpec(spec json.RawMessage) json.RawMessage {
	return hideEnv(spec, secretEnvOf(spec))
}

func secretEnvOf(spec json.RawMessage) []string {
	var in struct {
		SecretEnv []string `json:"secretEnv"`
	}
	if json.Unmarshal(spec, &in) != nil {
		return nil // a spec without an environment
	}
	return in.SecretEnv
}

// secretEnvAt are the places of the values in a spec.
func secretEnvAt(spec json.RawMessage) []string {
	var at []string
	for _, name := range secretEnvOf(spec) {
		for _, section := range envSections {
			at = append(at, "/"+section+"/env/"+escapeToken(name))
		}
	}
	return at
}

// escapeToken writes a name as one step of a JSON pointer.
func escapeToken(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// envSections are the members of specs that have an environment: of instances, and of deployments.
var envSections = []string{"run", "process"}

// hideEnv rewrites only what it must, so that members which this version does not know
// stay. What cannot be rewritten is left out.
func hideEnv(spec json.RawMessage, names []string) json.RawMessage {
	if len(names) == 0 {
		return spec
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(spec, &all) != nil {
		return nil
	}
	changed := false
	for _, section := range envSections {
		hidden, err := hideEnvIn(all[section], names)
		if err != nil {
			return nil
		}
		if hidden != nil {
			all[section], changed = hidden, true
		}
	}
	if !changed {
		return spec // no environment
	}
	out, err := readable(all)
	if err != nil {
		return nil
	}
	return out
}

// hideEnvIn gives a section without the values of some names, nil when it has no environment.
func hideEnvIn(text json.RawMessage, names []string) (json.RawMessage, error) {
	var section map[string]json.RawMessage
	var env map[string]string
	if json.Unmarshal(text, &section) != nil || json.Unmarshal(section["env"], &env) != nil {
		return nil, nil
	}
	for _, name := range names {
		if _, ok := env[name]; ok {
			env[name] = api.Redacted
		}
	}
	var err error
	if section["env"], err = readable(env); err != nil {
		return nil, err
	}
	return readable(section)
}

// readable is JSON in which api.Redacted stands as it is, not escaped for HTML.
func readable(v any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

// hideChange hides in both sides of an event what either marks.
func hideChange(before, after json.RawMessage) (json.RawMessage, json.RawMessage) {
	names := append(secretEnvOf(specOfChange(before)), secretEnvOf(specOfChange(after))...)
	return hideInChange(before, names), hideInChange(after, names)
}

func specOfChange(side json.RawMessage) json.RawMessage {
	var in struct {
		Spec json.RawMessage `json:"spec"`
	}
	_ = json.Unmarshal(side, &in) // what is no declared part has no spec
	return in.Spec
}

func hideInChange(side json.RawMessage, names []string) json.RawMessage {
	spec := specOfChange(side)
	if len(names) == 0 || spec == nil {
		return side
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(side, &all) != nil {
		return nil
	}
	all["spec"] = hideEnv(spec, names)
	out, err := readable(all)
	if err != nil {
		return nil
	}
	return out
}
