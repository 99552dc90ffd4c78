// Package fields lists what a test has to cover: each field of a type that is written as JSON.
package fields

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Of lists the fields of a type as JSON pointers, in their order; those of a map end with a slash.
func Of[T any]() []string { return below(reflect.TypeFor[T](), "") }

func below(of reflect.Type, at string) (all []string) {
	if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return []string{at}
	}
	switch of.Kind() { //nolint:exhaustive // all others are fields
	case reflect.Pointer:
		return below(of.Elem(), at)
	case reflect.Map:
		return []string{at + "/"}
	case reflect.Struct:
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, below(f.Type, at+"/"+name)...)
		}
		return all
	}
	return []string{at}
}
