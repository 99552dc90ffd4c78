package compose

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Layer is one JSON document of a composition.
type Layer struct {
	// Name tells the layer in errors: it stands before the pointer in their Field.
	Name string
	JSON []byte
}

// Canonical validates one document and gives its canonical form. The source is read in place
// and must not change meanwhile.
func Canonical(src []byte, l Limits) ([]byte, error) {
	out, _, err := canonical(src, l.effective())
	return out, err
}

func canonical(src []byte, l Limits) (out []byte, values int, err error) {
	doc, err := parse(src, l)
	if err != nil {
		return nil, 0, err
	}
	out = doc.canonical()
	// Numbers may grow (1e20), and what is accepted once must be accepted again.
	if int64(len(out)) > l.MaxBytes {
		return nil, 0, refuseSize(int64(len(out)), l.MaxBytes)
	}
	return out, doc.index.n, nil
}

// Flatten merges layers in order by RFC 7396, later over earlier, and gives the canonical
// form of the result. The first layer is the target, whose nulls stay; every later one is a
// patch. Each layer is held to the limits, and so is the result.
func Flatten(layers []Layer, l Limits) ([]byte, error) {
	b, err := NewBase(layers, l)
	if err != nil {
		return nil, err
	}
	return b.Flatten()
}

// ContentOf names a config by its canonical form.
func ContentOf(text []byte) fleet.Content {
	return fleet.Content{Kind: fleet.ContentJSON, Hash: HashOf(text), Size: int64(len(text))}
}

// MaxLayers bounds how many documents one config is merged from.
const MaxLayers = 256

// TooManyLayers refuses a config of more documents.
func TooManyLayers() error {
	return fleet.Errorf(fleet.Invalid, "the config is merged from more than %d documents", MaxLayers).At("/template").
		WithHint("merge some of the templates into one")
}

// HashOf gives the SHA-256 of a body, which is its revision hash.
func HashOf(b []byte) fleet.Hash {
	sum := sha256.Sum256(b)
	return fleet.Hash(hex.EncodeToString(sum[:]))
}
