package fleet

import (
	"cmp"
	"encoding/json"
	"slices"
)

// RegionName names a region, as a DNS label.
type RegionName string

// CopyKey names an object among those of all regions. Region is the one that created it, for life.
type CopyKey struct {
	Region RegionName
	ObjectKey
}

// String is the key in one word, for example eu/instance/plant-1/press-7.
func (k CopyKey) String() string { return string(k.Region) + "/" + k.ObjectKey.String() }

// CopyVersion orders the states of one object. Number is that of the owner's event; it rises over eras too.
type CopyVersion struct {
	OwnerEpoch int64 `json:"ownerEpoch"`
	Number     int64 `json:"number"`
}

// Newer reports whether v is after o.
func (v CopyVersion) Newer(o CopyVersion) bool {
	return cmp.Or(cmp.Compare(v.OwnerEpoch, o.OwnerEpoch), cmp.Compare(v.Number, o.Number)) > 0
}

// eraBits is how many of the lower bits of an event's number are for the events of one era.
const eraBits = 40

// FirstNumber is the number after which those of an era begin.
func FirstNumber(era int64) int64 { return era << eraBits }

// CopyEnd is why an object is no longer copied to a region.
type CopyEnd string

// The ends of a copy.
const (
	CopyDeleted CopyEnd = "deleted" // by its owner
	CopyRemoved CopyEnd = "removed" // its policy names the region no more
	CopyMoved   CopyEnd = "moved"   // another region owns it now, and says more
)

// CopyChange is one state of an object, as the region that owns it sends it. Without an object, End says why.
type CopyChange struct {
	Key     CopyKey
	Version CopyVersion
	End     CopyEnd
	Object  *Object
}

// Share reads the owner of an object and the regions that have it.
func (o *Object) Share() (Syncing, error) {
	var s Syncing
	if err := json.Unmarshal(o.Syncing, &s); err != nil {
		return s, Errorf(Internal, "read the regions of %s: %w", o.ObjectKey, err)
	}
	return s, nil
}

// In reports whether a region has the object: as its owner, or a copy.
func (s Syncing) In(r RegionName) bool {
	return s.OwningRegion == string(r) || slices.Contains(s.Regions, string(r))
}
