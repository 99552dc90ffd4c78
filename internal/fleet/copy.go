package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

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

// MovedNumber is that of a copy whose last owner named the next one: every state of that one, in this epoch or a higher one, is newer, as
// each region numbers its own states.
const MovedNumber = 1

// Newer reports whether v is after o.
func (v CopyVersion) Newer(o CopyVersion) bool {
	return cmp.Or(cmp.Compare(v.OwnerEpoch, o.OwnerEpoch), cmp.Compare(v.Number, o.Number)) > 0
}

// eraBits is how many of the lower bits of an event's number are for the events of one era.
const eraBits = 40

// FirstNumber is the number after which those of an era begin.
func FirstNumber(era int64) int64 { return era << eraBits }

// EraOf is the era of the event with a number. The first era begins with 1.
func EraOf(number int64) int64 { return max(1, number>>eraBits) }

// RegionEra is the era of a region's database: its number, and a random id, since a database that is restored twice may have one
// number twice.
type RegionEra struct {
	Number int64
	ID     string
}

// CopyEnd is why an object is no longer copied to a region.
type CopyEnd string

// The ends of a copy.
const (
	CopyDeleted CopyEnd = "deleted" // by its owner
	CopyRemoved CopyEnd = "removed" // its policy names the region no more
	CopyMoved   CopyEnd = "moved"   // another region owns it now, and says more
	CopyUndone  CopyEnd = "undone"  // a restore of its owner undid it
	CopyUnknown CopyEnd = "unknown" // its owner never knew it
)

// CopyChange is one state of an object, as the region that owns it sends it. Without an object, End says why.
type CopyChange struct {
	Key     CopyKey
	Version CopyVersion
	End     CopyEnd
	Object  *Object
	// Seen is the version that was here before the owner was asked about this object; nil for a change that the owner sent by itself.
	Seen *CopyVersion
	// MovedTo owns an object that moved.
	MovedTo RegionName
	// TookOver is what the owner had of the object when it took it over.
	TookOver *TookOver
}

func (c CopyChange) unknown() bool { return c.Key.Kind.Declared().Title == "" }

// Refused is why no region of this build can take the change, "" if it can: unknown_kind or malformed.
func (c CopyChange) Refused() string {
	switch {
	case c.unknown():
		return "unknown_kind"
	case c.Validate() != nil:
		return "malformed"
	}
	return ""
}

// Validate refuses what no region can have stored: one bad change does not hold up the others.
func (c CopyChange) Validate() error {
	if c.unknown() {
		return Errorf(Invalid, "unknown kind %.40q", c.Key.Kind).At("kind").WithHint("a newer region may know it: upgrade this one")
	}
	if c.Version.OwnerEpoch < 1 || c.Version.Number < 1 {
		return Errorf(Invalid, "invalid version: want numbers from 1").At("number")
	}
	names := []string{string(c.Key.Region), c.Key.Name}
	if c.Key.Scope != "" || c.Key.Kind.Declared().OfSite {
		names = append(names, c.Key.Scope)
	}
	if c.MovedTo != "" {
		names = append(names, string(c.MovedTo))
	}
	for t := c.TookOver; t != nil; t = t.Earlier {
		if t.Region != "" {
			names = append(names, string(t.Region))
		}
	}
	if c.Object != nil {
		if err := c.Object.storable(); err != nil {
			return err
		}
		if c.Object.Project != "" {
			names = append(names, string(c.Object.Project))
		}
	}
	for _, name := range names {
		if err := ValidateName("name", name); err != nil {
			return err
		}
	}
	return nil
}

// storable refuses what Postgres does not take.
func (o *Object) storable() error {
	if !isObject(o.Spec) || !isObject(o.Syncing) {
		return Errorf(Invalid, "the spec or the syncing is no JSON object that can be stored").At("spec")
	}
	if !isUUID(o.UID) || o.Generation < 1 {
		return Errorf(Invalid, "invalid uid or generation").At("uid")
	}
	texts := o.CreatedBy + o.Service
	for k, v := range o.Labels {
		texts += k + v
	}
	if strings.ContainsRune(texts, 0) {
		return Errorf(Invalid, "a label, service or creator has a NUL character").At("labels")
	}
	return nil
}

// isObject reports whether Postgres can store a JSON object: it has no NUL characters.
func isObject(text json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(text, &m) == nil && m != nil && !bytes.Contains(text, []byte(`\u0000`))
}

// isUUID reports whether s has the form of the ids that Postgres draws.
func isUUID(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) != 5 {
		return false
	}
	for i, digits := range []int{8, 4, 4, 4, 12} {
		if !isHex(parts[i], digits) {
			return false
		}
	}
	return true
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

// StreamClaim is the right to write what a peer sends. The one with the highest number counts.
type StreamClaim struct {
	Peer   RegionName
	Number int64
}

// StreamPlace is where to follow a peer from: a position, or "" and where the first snapshot began that did not end.
type StreamPlace struct {
	Position, Began string
	// Waits: changes of the peer wait for a policy. Each set tries some of them again.
	Waits bool
}

// CopySet is a part of what a peer sent, at most 500 changes.
type CopySet struct {
	Claim   StreamClaim
	Changes []CopyChange
	// Arrived: what the changes are composed of is here now. They are of use only while they still wait.
	Arrived bool
	// Place is that after the set; nil leaves it.
	Place *StreamPlace
	// Current: the peer had nothing more. Lag is how far behind the copies are then.
	Current bool
	Lag     time.Duration
	// Reset: the place before was of no use.
	Reset bool
	// UndoneFrom is the number of the first event of the place's era that a restore of the peer undid; 0 if none did.
	UndoneFrom int64
}

// CopiesApplied counts what became of changes.
type CopiesApplied struct {
	Written int `json:"written"`
	Ended   int `json:"ended"`
	Kept    int `json:"kept,omitempty"`    // older than what was there
	Refused int `json:"refused,omitempty"` // set aside, with a reason
	Waiting int `json:"waiting,omitempty"` // for what they are composed of
	Rivals  int `json:"rivals,omitempty"`  // two regions claimed the object in one epoch
}

// Followed is what one turn did that follows a peer.
type Followed struct {
	CopiesApplied
	Streams int    `json:"streams"`          // how often the stream was opened
	Left    bool   `json:"left,omitempty"`   // the region is no peer any more, or a disabled one
	Reason  string `json:"reason,omitempty"` // why the last stream ended
}
