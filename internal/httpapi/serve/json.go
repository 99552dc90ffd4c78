package serve

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Decode reads one JSON document strictly: unknown members and duplicate names are refused
// with their place. Errors never quote the document.
func Decode(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fleet.Errorf(fleet.Invalid, "the request body is empty").At("/").WithHint("send one JSON document")
	}
	return decodeBeside(nil, raw, into)
}

// decodeBeside is Decode of what is left of a document beside the members of these names.
func decodeBeside(names []string, raw []byte, into any) error {
	return RefuseJSON(raw, json.Unmarshal(raw, into, json.RejectUnknownMembers(true)), names...)
}

// Envelope splits a document: members named in bodies become parts of raw, without a copy
// and not looked into; the rest is decoded into into.
func Envelope(raw []byte, bodies map[string]*[]byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Decode(raw, into)
	}
	// From a bytes.Buffer the decoder reads in place.
	tokens := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if tokens.PeekKind() != jsontext.KindBeginObject {
		return Decode(raw, into) // says what is wrong
	}
	if _, err := tokens.ReadToken(); err != nil {
		return RefuseJSON(raw, err)
	}
	rest := []byte{'{'}
	for tokens.PeekKind() == '"' {
		name, value, err := member(tokens, raw)
		if err != nil {
			return RefuseJSON(raw, err)
		}
		if body, ok := bodies[name]; ok {
			if *body != nil {
				return fleet.Errorf(fleet.Invalid, "duplicate key").At("/" + name).WithHint("keep one of the two")
			}
			*body = value
			continue
		}
		if len(rest)+len(value) > smallBody {
			return BodyTooLarge(smallBody)
		}
		if rest, err = appendMember(rest, name, value); err != nil {
			return RefuseJSON(raw, err)
		}
	}
	if _, err := tokens.ReadToken(); err != nil {
		return RefuseJSON(raw, err)
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

// RefuseJSON turns an error of the decoder into one of ours. The names are those of members that the document
// may have beside what was decoded.
func RefuseJSON(raw []byte, err error, names ...string) error {
	if err == nil {
		return nil
	}
	var wrong *json.SemanticError
	if errors.As(err, &wrong) {
		at := fleet.CutField(string(wrong.JSONPointer))
		var known *fleet.Error // of a type that reads itself
		if errors.As(wrong.Err, &known) {
			return Below(strings.TrimSuffix(at, "/"), known)
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

// Below puts the place of a document before the place that an error names in it.
func Below(place string, err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err
	}
	return e.At(strings.TrimSuffix(place+"/"+strings.TrimPrefix(e.Field, "/"), "/"))
}
