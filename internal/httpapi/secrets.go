package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// secretsOf collects what is marked in the config of a revision: by the spec that it was released from, and by the spec of now.
func (s *server) secretsOf(ctx context.Context, o fleet.Object, revision int64) ([]string, error) {
	released, err := s.store.SpecOf(ctx, o.ObjectKey, revision)
	if err != nil {
		return nil, err
	}
	var now fleet.InstanceSpec
	if err := json.Unmarshal(o.Spec, &now); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", o.ObjectKey, err)
	}
	marks, _, err := s.maker.Secrets(ctx, released, now)
	return marks, err
}

// serveRedacted sends a config without the values that the pointers name.
func (s *server) serveRedacted(w http.ResponseWriter, r *http.Request, c fleet.Content, pointers []string) error {
	body, err := s.store.OpenBody(r.Context(), c.Hash)
	if err != nil {
		return err
	}
	var hidden []span
	// The longest string may be the whole body: it counts against what is read at once.
	err = s.maker.Budget.Do(r.Context(), c.Size, func() error {
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
	return hideEnv(spec, declaration.SecretEnv(spec))
}

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
	for _, section := range declaration.EnvSections() {
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
	names := append(declaration.SecretEnv(specOfChange(before)), declaration.SecretEnv(specOfChange(after))...)
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
