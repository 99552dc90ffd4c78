package compare

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// The paths that peers serve to each other.
const (
	PathSums    = "/peer/v1/compare"
	PathObjects = "/peer/v1/compare/objects"
	PathNamed   = "/peer/v1/compare/named"
)

const (
	// format is that of the sums; a region of another one cannot be compared with.
	format = 1
	// perRange is how many objects a range is to have.
	perRange = 32
	// tooMany is how many objects of a range cause smaller ranges.
	tooMany = 64 * perRange
	// rangesAtOnce is how many ranges are one page.
	rangesAtOnce = 128
	// namedAtOnce is how many objects are named in one question.
	namedAtOnce = 500
	// maxBits keeps ranges apart that have next to nothing in them.
	maxBits = 24
	// wholeSum is the size of the sum of a range, shortSum that of an object as the owner sends it, both in bytes.
	wholeSum = 16
	shortSum = 8
)

// sums asks for what differs in consecutive ranges. Without Sums it asks for the number of objects.
type sums struct {
	Format int    `json:"format"`
	Bits   int    `json:"bits,omitempty"`
	First  int64  `json:"first,omitempty"`
	Sums   []byte `json:"sums,omitempty"`
	// Place is how far the region that asks has followed this one.
	Place string `json:"place,omitempty"`
}

// Validate refuses what no region asks.
func (s sums) Validate() error {
	ranges := int64(len(s.Sums) / wholeSum)
	switch {
	case s.Format != format:
		return fleet.Errorf(fleet.Invalid, "sums of format %d: want %d", s.Format, format).At("/format").WithHint("upgrade the older region")
	case len(s.Sums)%wholeSum != 0 || ranges > rangesAtOnce:
		return fleet.Errorf(fleet.Invalid, "want at most %d sums of %d bytes", rangesAtOnce, wholeSum).At("/sums")
	case ranges > 0 && (s.Bits < 1 || s.Bits > maxBits || s.First < 0 || s.First+ranges > 1<<s.Bits):
		return fleet.Errorf(fleet.Invalid, "want 1 to %d bits, and ranges within them", maxBits).At("/bits")
	}
	return nil
}

// differing is what the owner has in ranges that differ.
type differing struct {
	// Objects is how many there are in the ranges; in all, if no range was asked for.
	Objects int64 `json:"objects"`
	// Crowded: a range has so many objects that smaller ranges are better.
	Crowded bool `json:"crowded,omitempty"`
	// UndoneFrom is the number of the first event of the place's era that a restore undid, 0 if none did.
	UndoneFrom int64    `json:"undoneFrom,omitempty"`
	Ranges     []sumsOf `json:"ranges,omitempty"`
}

// sumsOf are the short sums of objects in one range.
type sumsOf struct {
	Range int64  `json:"range"`
	Sums  []byte `json:"sums,omitempty"`
}

// wanted asks for objects by their short sums.
type wanted struct {
	Bits   int      `json:"bits"`
	Ranges []sumsOf `json:"ranges"`
}

// Validate refuses what no region asks.
func (w wanted) Validate() error {
	if len(w.Ranges) > rangesAtOnce {
		return fleet.Errorf(fleet.Invalid, "%d ranges: want at most %d", len(w.Ranges), rangesAtOnce).At("/ranges")
	}
	for _, r := range w.Ranges {
		if w.Bits < 1 || w.Bits > maxBits || r.Range < 0 || r.Range >= 1<<w.Bits || len(r.Sums)%shortSum != 0 {
			return fleet.Errorf(fleet.Invalid, "invalid range or sums").At("/ranges")
		}
	}
	return nil
}

// named asks what became of objects.
type named struct {
	Objects []askedOf `json:"objects"`
	// Changed leaves out what is as the region that asks has it.
	Changed bool `json:"changed,omitempty"`
}

// askedOf is an object by name, and the state that is known of it.
type askedOf struct {
	Region     string `json:"region"`
	Kind       string `json:"kind"`
	Scope      string `json:"scope,omitempty"`
	Name       string `json:"name"`
	OwnerEpoch int64  `json:"ownerEpoch"`
	Number     int64  `json:"number"`
}

// Validate refuses what no region asks.
func (n named) Validate() error {
	if len(n.Objects) > namedAtOnce {
		return fleet.Errorf(fleet.Invalid, "%d objects: want at most %d", len(n.Objects), namedAtOnce).At("/objects")
	}
	for _, o := range n.Objects {
		for _, name := range []string{o.Region, o.Kind, o.Scope, o.Name} {
			if err := fleet.ValidateName("/objects", name); err != nil && (name != "" || o.Name == "") {
				return err
			}
		}
	}
	return nil
}

func (a askedOf) asked() fleet.CopyAsked {
	return fleet.CopyAsked{
		Key: fleet.CopyKey{
			Region: fleet.RegionName(a.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(a.Kind), Scope: a.Scope, Name: a.Name},
		},
		Version: fleet.CopyVersion{OwnerEpoch: a.OwnerEpoch, Number: a.Number},
	}
}

func askedFor(a fleet.CopyAsked) askedOf {
	return askedOf{string(a.Key.Region), string(a.Key.Kind), a.Key.Scope, a.Key.Name, a.Version.OwnerEpoch, a.Version.Number}
}

// reply is a line of an answer: an object as it is, or how it ended; the last one is the number of lines before it.
type reply struct {
	api.WatchLine
	// End, MovedTo and TookOver are of an object that ended, which As names.
	End      fleet.CopyEnd   `json:"end,omitempty"`
	MovedTo  string          `json:"movedTo,omitempty"`
	TookOver *fleet.TookOver `json:"tookOver,omitempty"`
	As       *askedOf        `json:"as,omitempty"`
}

func (t reply) change(peer fleet.RegionName) (fleet.CopyChange, error) {
	if t.As == nil {
		return watch.ChangeOf(peer, t.WatchLine)
	}
	a := t.As.asked()
	return fleet.CopyChange{Key: a.Key, Version: a.Version, End: t.End, MovedTo: fleet.RegionName(t.MovedTo), TookOver: t.TookOver}, nil
}

func replyOf(c fleet.CopyChange, view func(fleet.Object) api.Object) reply {
	if c.Object == nil {
		as := askedFor(fleet.CopyAsked{Key: c.Key, Version: c.Version})
		return reply{WatchLine: api.WatchLine{Type: api.WatchGone}, End: c.End, MovedTo: string(c.MovedTo), TookOver: c.TookOver, As: &as}
	}
	o := view(*c.Object)
	return reply{WatchLine: api.WatchLine{
		Type: api.WatchObject, Region: string(c.Object.Region), OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, Object: &o,
	}}
}

// uids are those of a number of ranges.
func uids(bits int, first, ranges int64) fleet.UIDRange {
	shift := 32 - bits
	from, to := first<<shift, (first+ranges)<<shift-1
	return fleet.UIDRange{
		First: fmt.Sprintf("%08x-0000-0000-0000-000000000000", from), Last: fmt.Sprintf("%08x-ffff-ffff-ffff-ffffffffffff", to),
	}
}

// rangeOf is the range of a uid.
func rangeOf(uid string, bits int) int64 {
	first, err := strconv.ParseUint(uid[:8], 16, 32)
	if err != nil {
		return 0 // Postgres gives no other uids
	}
	return int64(first >> (32 - bits)) //nolint:gosec // of 32 bits
}

// whole are the sums of consecutive ranges, and how many objects are in each.
type whole struct {
	sums    []byte
	objects []int64
	all     int64
}

// wholeOf has the sums of ranges in their order, with those of empty ones.
func wholeOf(in []fleet.RangeSum, first, ranges int64) whole {
	empty := sha256.Sum256(nil)
	w := whole{sums: bytes.Repeat(empty[:wholeSum], int(ranges)), objects: make([]int64, ranges)}
	for _, r := range in {
		at := r.Range - first
		copy(w.sums[at*wholeSum:], r.Sum[:wholeSum])
		w.objects[at] = r.Objects
		w.all += r.Objects
	}
	return w
}

// bitsFor is how many bits make ranges of the right size.
func bitsFor(objects int64) int {
	bits := 1
	for bits < maxBits && objects>>bits > perRange {
		bits++
	}
	return bits
}
