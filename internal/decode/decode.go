// Package decode reads the JSON documents of people strictly. What the decoder refuses becomes an error with its place,
// what is allowed there and, where people often write something else, what to write instead. The API, the command line,
// plan and apply all read by it, so that a mistake reads the same everywhere.
package decode

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Strict reads one JSON document: unknown fields and duplicate keys are refused. The names are those of fields that the
// document may have beside what into has. Errors quote nothing of the document but numbers, durations and amounts.
func Strict(raw []byte, into any, names ...string) error {
	return Refuse(raw, json.Unmarshal(raw, into, json.RejectUnknownMembers(true)), names...)
}

// Manifest is Strict but for duplicate keys: those of configs reach the region as they are.
func Manifest(raw []byte, into any) error {
	return Refuse(raw, json.Unmarshal(raw, into, json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true)))
}

// Refuse turns an error of the decoder into one of ours. The names are as in Strict.
func Refuse(raw []byte, err error, names ...string) error {
	if err == nil {
		return nil
	}
	var wrong *json.SemanticError
	if errors.As(err, &wrong) {
		return refuseValue(raw, wrong, names)
	}
	// Malformed JSON gets the same error as in configs.
	if _, known := compose.Canonical(raw, compose.DefaultLimits()); known != nil {
		return asDocument(known)
	}
	return fleet.Errorf(fleet.Invalid, "malformed JSON").At("/")
}

// asDocument gives an error of a config another hint where that is about how to deliver a file.
func asDocument(err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) || e.Hint != compose.ByteForByte {
		return err
	}
	return fleet.Errorf(e.Kind, "%s", e.Message).At(e.Field).WithHint("write plain JSON in UTF-8, without a byte order mark and comments")
}

func refuseValue(raw []byte, wrong *json.SemanticError, names []string) error {
	at := fleet.CutField(string(wrong.JSONPointer))
	var known *fleet.Error // of a type that reads itself
	if errors.As(wrong.Err, &known) {
		return Below(strings.TrimSuffix(at, "/"), known)
	}
	if errors.Is(wrong.Err, json.ErrUnknownName) {
		if strings.Count(at, "/") > 1 {
			names = nil
		}
		allowed := append(slices.Clone(names), membersOf(wrong.GoType)...)
		refused := fleet.Errorf(fleet.Invalid, "unknown field; %s", useOf(allowed)).At(at)
		return refused.WithHint(insteadOfField(wrong.JSONPointer.LastToken(), allowed))
	}
	want, hint := insteadOfValue(given{place: places(wrong.JSONPointer), value: valueAt(raw, wrong), wanted: wrong.GoType})
	return fleet.Errorf(fleet.Invalid, "invalid value: must be %s", want).At(at).WithHint(hint)
}

// valueAt is the value that was refused, nil if it is not known.
func valueAt(raw []byte, wrong *json.SemanticError) jsontext.Value {
	if wrong.JSONValue != nil {
		return wrong.JSONValue
	}
	if wrong.ByteOffset < 0 || wrong.ByteOffset > int64(len(raw)) {
		return nil
	}
	value, err := jsontext.NewDecoder(bytes.NewBuffer(raw[wrong.ByteOffset:]), jsontext.AllowDuplicateNames(true)).ReadValue()
	if err != nil {
		return nil
	}
	return value
}

// places are the tokens of a pointer.
func places(at jsontext.Pointer) []string { return slices.Collect(at.Tokens()) }

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

// membersOf are the names of the fields of a struct in JSON.
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

// wordFor names what JSON calls a type.
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
