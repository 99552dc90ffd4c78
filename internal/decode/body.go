package decode

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Small is the limit of requests that bring no config, and of what an envelope has around its bodies, in bytes.
const Small = 1 << 20

// TooLarge refuses a body that exceeds its limit.
func TooLarge(limit int64) error {
	return fleet.Errorf(fleet.TooLarge, "the request exceeds %d bytes", limit).
		WithHint("upload large content as an artifact")
}

// Body reads one JSON document strictly: unknown members and duplicate names are refused
// with their place. Errors never quote the document.
func Body(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fleet.Errorf(fleet.Invalid, "the request body is empty").At("/").WithHint("send one JSON document")
	}
	return Strict(raw, into)
}

// Envelope splits a document: members named in bodies become parts of raw, without a copy
// and not looked into; the rest is decoded into into.
func Envelope(raw []byte, bodies map[string]*[]byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Body(raw, into)
	}
	// From a bytes.Buffer the decoder reads in place.
	tokens := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if tokens.PeekKind() != jsontext.KindBeginObject {
		return Body(raw, into) // says what is wrong
	}
	if _, err := tokens.ReadToken(); err != nil {
		return Refuse(raw, err)
	}
	rest := []byte{'{'}
	for tokens.PeekKind() == '"' {
		name, value, err := member(tokens, raw)
		if err != nil {
			return Refuse(raw, err)
		}
		if body, ok := bodies[name]; ok {
			if *body != nil {
				return fleet.Errorf(fleet.Invalid, "duplicate key").At("/" + name).WithHint("keep one of the two")
			}
			*body = value
			continue
		}
		if len(rest)+len(value) > Small {
			return TooLarge(Small)
		}
		if rest, err = appendMember(rest, name, value); err != nil {
			return Refuse(raw, err)
		}
	}
	if _, err := tokens.ReadToken(); err != nil {
		return Refuse(raw, err)
	}
	if _, err := tokens.ReadToken(); !errors.Is(err, io.EOF) {
		return fleet.Errorf(fleet.Invalid, "malformed JSON: there is more after the document's end").At("/")
	}
	for _, body := range bodies {
		if string(*body) == "null" {
			*body = nil // says the same as leaving it out
		}
	}
	return Strict(append(rest, '}'), into, slices.Sorted(maps.Keys(bodies))...)
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
