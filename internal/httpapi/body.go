package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// smallBody is the limit of requests that bring no config.
const smallBody = 1 << 20

const (
	// firstPiece is what a body takes without a reservation, and grownBy how many times more is
	// reserved each time when that is full.
	firstPiece = 64 << 10
	grownBy    = 4
	// slowest is how many bytes a second a body comes at, at least, on the whole.
	slowest = 16 << 10
)

// withBody reads the body of a request whole and hands it to f. Memory stays bounded however many
// are sent at once, and however slowly.
func (s *core) withBody(ctx context.Context, limit int64, f func(raw []byte) error) error {
	c := callOf(ctx)
	memory := s.memory.begin(c.share)
	defer memory.end()
	raw, err := s.readBody(c.w, c.request, limit, memory)
	if err != nil {
		return err
	}
	return f(raw)
}

func bodyTooLarge(limit int64) error {
	return fleet.Errorf(fleet.TooLarge, "the request exceeds %d bytes", limit).
		WithHint("upload large content as an artifact")
}

// readBody reads a body whole. What it takes is reserved until memory ends.
func (s *core) readBody(w http.ResponseWriter, r *http.Request, limit int64, memory *held) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	body := s.rollingBody(w, r)
	body.slowest = slowest
	most := limit + 1 // one byte more shows that it is too long, or at its end
	if r.ContentLength >= 0 {
		most = r.ContentLength + 1
	}
	raw := make([]byte, 0, min(firstPiece, most))
	for {
		if len(raw) == cap(raw) {
			more := min(grownBy*int64(cap(raw)), most)
			waits := s.now()
			if err := memory.grow(r.Context(), more-int64(cap(raw))); err != nil {
				return nil, err
			}
			body.began = body.began.Add(s.now().Sub(waits)) // that was not the sender's time
			raw = append(make([]byte, 0, more), raw...)
		}
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > limit:
			return nil, bodyTooLarge(limit)
		case errors.Is(err, io.EOF):
			return raw, body.settle()
		case errors.As(err, new(*fleet.Error)):
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fleet.Errorf(fleet.Invalid, "the body stalled after %d bytes", len(raw)).
				WithHint(fmt.Sprintf("retry with at least %d bytes per second", slowest))
		case err != nil:
			return nil, fleet.Errorf(fleet.Invalid, "the body ended after %d bytes", len(raw)).WithHint("retry")
		}
	}
}

// rollingReader gives each read of a body its own deadline: one that stalls is cut, and one that is
// slower than slowest on the whole. What lasts is refused once the token that let it in is void.
type rollingReader struct {
	from    io.Reader
	still   func() error
	checked time.Time
	w       *http.ResponseController
	now     func() time.Time
	stall   time.Duration
	slowest int64 // bytes a second; 0 is as slow as it likes
	began   time.Time
	read    int64
}

func (s *core) rollingBody(w http.ResponseWriter, r *http.Request) *rollingReader {
	now := s.now()
	out := &rollingReader{from: r.Body, w: http.NewResponseController(w), now: s.now, stall: s.stall, began: now, checked: now}
	if still := callOf(r.Context()).still; still != nil {
		out.still = func() error { return still(r.Context()) }
	}
	return out
}

func (r *rollingReader) Read(p []byte) (int, error) {
	until := r.now().Add(r.stall)
	if r.slowest > 0 {
		due := r.began.Add(r.stall + time.Duration(r.read)*time.Second/time.Duration(r.slowest))
		if due.Before(until) {
			until = due
		}
	}
	if err := r.deadline(until); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.read += int64(n)
	if now := r.now(); r.still != nil && now.Sub(r.checked) >= tokenLife {
		if void := r.still(); void != nil {
			return 0, void
		}
		r.checked = now
	}
	return n, err
}

// settle takes the deadline away, which would else cut the answer's connection.
func (r *rollingReader) settle() error { return r.deadline(time.Time{}) }

func (r *rollingReader) deadline(at time.Time) error {
	if err := r.w.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// readJSON reads a small request. One without a body is refused unless it may be empty.
func (s *core) readJSON(ctx context.Context, into any) (raw []byte, err error) {
	err = s.withBody(ctx, smallBody, func(body []byte) error {
		raw = body
		return decode(body, into)
	})
	return raw, err
}

// readOptional is readJSON for a request that may have no body at all.
func (s *core) readOptional(ctx context.Context, into any) (raw []byte, err error) {
	err = s.withBody(ctx, smallBody, func(body []byte) error {
		raw = body
		if len(bytes.TrimSpace(body)) == 0 {
			return nil
		}
		return decode(body, into)
	})
	return raw, err
}

// decode reads one JSON document strictly: unknown members and duplicate names are refused
// with their place. Errors never quote the document.
func decode(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fleet.Errorf(fleet.Invalid, "the request body is empty").At("/").WithHint("send one JSON document")
	}
	return decodeBeside(nil, raw, into)
}

// decodeBeside is decode of what is left of a document beside the members of these names.
func decodeBeside(names []string, raw []byte, into any) error {
	return refuseJSON(raw, json.Unmarshal(raw, into, json.RejectUnknownMembers(true)), names...)
}

// envelope splits a document: members named in bodies become parts of raw, without a copy
// and not looked into; the rest is decoded into into.
func envelope(raw []byte, bodies map[string]*[]byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return decode(raw, into)
	}
	// From a bytes.Buffer the decoder reads in place.
	tokens := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if tokens.PeekKind() != jsontext.KindBeginObject {
		return decode(raw, into) // says what is wrong
	}
	if _, err := tokens.ReadToken(); err != nil {
		return refuseJSON(raw, err)
	}
	rest := []byte{'{'}
	for tokens.PeekKind() == '"' {
		name, value, err := member(tokens, raw)
		if err != nil {
			return refuseJSON(raw, err)
		}
		if body, ok := bodies[name]; ok {
			if *body != nil {
				return fleet.Errorf(fleet.Invalid, "duplicate key").At("/" + name).WithHint("keep one of the two")
			}
			*body = value
			continue
		}
		if len(rest)+len(value) > smallBody {
			return bodyTooLarge(smallBody)
		}
		if rest, err = appendMember(rest, name, value); err != nil {
			return refuseJSON(raw, err)
		}
	}
	if _, err := tokens.ReadToken(); err != nil {
		return refuseJSON(raw, err)
	}
	if _, err := tokens.ReadToken(); !errors.Is(err, io.EOF) {
		return fleet.Errorf(fleet.Invalid, "malformed JSON: there is more after the document's end").At("/")
	}
	for _, body := range bodies {
		if string(*body) == "null" {
			*body = nil // says the same as leaving it out
		}
	}
	return decodeBeside(slices.Sorted(maps.Keys(bodies)), append(rest, '}'), into)
}

func member(tokens *jsontext.Decoder, raw []byte) (name string, value []byte, err error) {
	token, err := tokens.ReadToken()
	if err != nil {
		return "", nil, err
	}
	name = token.String()
	v, err := tokens.ReadValue()
	if err != nil {
		return "", nil, err
	}
	end := tokens.InputOffset()
	return name, raw[end-int64(len(v)) : end : end], nil
}

func appendMember(object []byte, name string, value []byte) ([]byte, error) {
	if len(object) > 1 {
		object = append(object, ',')
	}
	object, err := jsontext.AppendQuote(object, name)
	return append(append(object, ':'), value...), err
}

// refuseJSON turns an error of the decoder into one of ours. The names are those of members that the document
// may have beside what was decoded.
func refuseJSON(raw []byte, err error, names ...string) error {
	if err == nil {
		return nil
	}
	var wrong *json.SemanticError
	if errors.As(err, &wrong) {
		at := fleet.CutField(string(wrong.JSONPointer))
		var known *fleet.Error // of a type that reads itself
		if errors.As(wrong.Err, &known) {
			return below(strings.TrimSuffix(at, "/"), known)
		}
		if errors.Is(wrong.Err, json.ErrUnknownName) {
			if strings.Count(at, "/") > 1 {
				names = nil
			}
			return fleet.Errorf(fleet.Invalid, "unknown field; %s", useOf(append(names, membersOf(wrong.GoType)...))).At(at)
		}
		return fleet.Errorf(fleet.Invalid, "invalid value: must be %s", wordFor(wrong.GoType)).At(at)
	}
	// Malformed JSON gets the same error as in configs.
	if _, known := compose.Canonical(raw, compose.DefaultLimits()); known != nil {
		return known
	}
	return fleet.Errorf(fleet.Invalid, "malformed JSON").At("/")
}

// useOf lists the fields of an object.
func useOf(names []string) string {
	if len(names) == 0 {
		return "this object has none"
	}
	var each []string
	for _, n := range names { // what was split off is a field of the struct too
		if !slices.Contains(each, n) {
			each = append(each, n)
		}
	}
	return "use " + fleet.OrList(each)
}

func membersOf(t reflect.Type) []string {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func wordFor(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the kinds that requests are made of
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint64:
		return "a whole number"
	}
	return "something else"
}

// below puts the place of a document before the place that an error names in it.
func below(place string, err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err
	}
	return e.At(strings.TrimSuffix(place+"/"+strings.TrimPrefix(e.Field, "/"), "/"))
}

// checkNames refuses too many names, none twice, and what is no name.
func checkNames(n int, name func(i int) fleet.InstanceName) error {
	if n < 1 || n > fleet.MaxComparedNames {
		return fleet.Errorf(fleet.Invalid, "%d names given", n).At("/instances").WithHint("give 1 to " + strconv.Itoa(fleet.MaxComparedNames))
	}
	seen := make(map[fleet.InstanceName]bool, n)
	for i := range n {
		if err := fleet.ValidateName("/instances/"+strconv.Itoa(i), string(name(i))); err != nil {
			return err
		}
		if seen[name(i)] {
			return fleet.Errorf(fleet.Invalid, "%s is given twice", name(i)).At("/instances")
		}
		seen[name(i)] = true
	}
	return nil
}
