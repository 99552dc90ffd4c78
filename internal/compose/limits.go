package compose

import "math"

// Limits bound what one JSON document may be; a field that is zero has its default.
type Limits struct {
	// MaxBytes holds for the source and for its canonical form.
	MaxBytes int64
	// MaxDepth is how many arrays and objects may lie within each other.
	MaxDepth int
	// MaxValues counts objects, arrays and scalars, not member names.
	MaxValues int
}

// DefaultLimits gives the limits of a region that configures none: 64 MiB, 200 levels,
// 2 million values.
func DefaultLimits() Limits {
	return Limits{MaxBytes: 64 << 20, MaxDepth: 200, MaxValues: 2_000_000}
}

// effective fills in defaults and cuts to what the index can address: its offsets are 32
// bits, and validating recurses once per level, up to what the tokenizer itself allows.
func (l Limits) effective() Limits {
	d := DefaultLimits()
	if l.MaxBytes <= 0 {
		l.MaxBytes = d.MaxBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = d.MaxDepth
	}
	if l.MaxValues <= 0 {
		l.MaxValues = d.MaxValues
	}
	return Limits{
		MaxBytes:  min(l.MaxBytes, math.MaxUint32),
		MaxDepth:  min(l.MaxDepth, 10_000),
		MaxValues: min(l.MaxValues, math.MaxInt32),
	}
}
