package compose

import "github.com/holdfast-io/holdfast/internal/fleet"

// Base is what the first layers of many compositions have in common, merged once. It never
// changes, so many may be made of it at the same time.
type Base struct {
	text   []byte
	values int
	limits Limits
}

// NewBase merges the first layers of a composition. What they come to is held to the limits
// only when it is the result.
func NewBase(layers []Layer, l Limits) (*Base, error) {
	if len(layers) == 0 {
		return nil, fleet.Errorf(fleet.Invalid, "a composition needs at least one layer")
	}
	b := &Base{limits: l.effective()}
	for i, layer := range layers {
		text, values, err := canonical(layer.JSON, b.limits)
		if err != nil {
			return nil, within(layer.Name, err)
		}
		b.values += values
		if i == 0 {
			b.text = text
		} else {
			b.text = merge(b.text, text)
		}
	}
	return b, nil
}

// Size is the length of what the layers come to.
func (b *Base) Size() int64 { return int64(len(b.text)) }

// Flatten gives what Flatten of the layers of the base gives.
func (b *Base) Flatten() ([]byte, error) { return b.result(b.text, b.values) }

// With gives what Flatten of the layers of the base and one more gives.
func (b *Base) With(layer Layer) ([]byte, error) {
	text, values, err := canonical(layer.JSON, b.limits)
	if err != nil {
		return nil, within(layer.Name, err)
	}
	return b.result(merge(b.text, text), b.values+values)
}

// result holds a composition of so many values of layers to the limits.
func (b *Base) result(text []byte, values int) ([]byte, error) {
	if int64(len(text)) > b.limits.MaxBytes {
		return nil, refuseSize(int64(len(text)), b.limits.MaxBytes)
	}
	// Merging adds no value that no layer has, so counting is seldom needed.
	if values > b.limits.MaxValues && countValues(text) > b.limits.MaxValues {
		return nil, refuseValues("", b.limits.MaxValues)
	}
	return text, nil
}
