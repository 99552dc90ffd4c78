package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// smallBody is what a request may hold without waiting for its share of the memory.
const smallBody = 1 << 20

// withBody reads the body of a request whole and hands it to f. Large ones wait for their
// share, so that memory stays bounded however many are sent at once.
func (s *server) withBody(ctx context.Context, limit int64, f func(raw []byte) error) error {
	c := callOf(ctx)
	size := c.r.ContentLength
	if size < 0 {
		size = limit // not announced
	}
	if size > limit {
		return bodyTooLarge(limit)
	}
	read := func() error {
		raw, err := s.readBody(c.w, c.r, limit)
		if err != nil {
			return err
		}
		return f(raw)
	}
	if size <= smallBody {
		return read()
	}
	return s.reading.Do(ctx, size, read)
}

func bodyTooLarge(limit int64) error {
	return fleet.Errorf(fleet.TooLarge, "the request is longer than %d bytes", limit).
		WithHint("upload large content as an artifact")
}

func (s *server) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body := &rollingReader{from: r.Body, w: http.NewResponseController(w), now: s.now, stall: s.stall}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), limit)+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(body, limit+1))
	if err == nil {
		err = body.settle()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fleet.Errorf(fleet.Invalid, "the body stalled after %d bytes", n).WithHint("send it again")
	case err != nil:
		return nil, fleet.Errorf(fleet.Invalid, "the body broke off after %d bytes", n).WithHint("send it again")
	case n > limit:
		return nil, bodyTooLarge(limit)
	}
	return buf.Bytes(), nil
}

// rollingReader gives each read of a body its own deadline: a slow sender may take as long
// as it needs, one that stalls is cut.
type rollingReader struct {
	from  io.Reader
	w     *http.ResponseController
	now   func() time.Time
	stall time.Duration
}

func (r *rollingReader) Read(p []byte) (int, error) {
	if err := r.deadline(r.now().Add(r.stall)); err != nil {
		return 0, err
	}
	return r.from.Read(p)
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
func (s *server) readJSON(ctx context.Context, into any) (raw []byte, err error) {
	err = s.withBody(ctx, smallBody, func(body []byte) error {
		raw = body
		return decode(body, into)
	})
	return raw, err
}

// readOptional is readJSON for a request that may have no body at all.
func (s *server) readOptional(ctx context.Context, into any) (raw []byte, err error) {
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
		return fleet.Errorf(fleet.Invalid, "there is no body").At("/").WithHint("send one JSON document")
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
		at := cutField(string(wrong.JSONPointer))
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
		return fleet.Errorf(fleet.Invalid, "this must be %s", wordFor(wrong.GoType)).At(at)
	}
	// What is no JSON at all is told in the words that hold for configs too.
	if _, known := compose.Canonical(raw, compose.DefaultLimits()); known != nil {
		return known
	}
	return fleet.Errorf(fleet.Invalid, "malformed JSON").At("/")
}

const maxField = 1024

// cutField bounds the place in an answer: names may be as long as the request.
func cutField(at string) string {
	if len(at) > maxField {
		at = strings.ToValidUTF8(at[:maxField], "") + "…"
	}
	if at == "" {
		return "/"
	}
	return at
}

// useOf says which fields an object has.
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
