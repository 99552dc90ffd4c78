package fleet

import (
	"encoding/json"
	"reflect"
	"time"
)

// OperationHandOver is a request that another region becomes the control region of a policy holder.
const OperationHandOver OperationKind = "hand-over"

// Fence says that the owner of a policy holder writes nothing more under it, and which region is to claim it.
type Fence struct {
	To string `json:"to"`
	// Epoch is that of the claim.
	Epoch int64 `json:"epoch"`
	// After is the place in the owner's feed that the new owner has to reach first.
	After string `json:"after"`
}

// TookOver names a state of an object by its owner and version.
type TookOver struct {
	Region     RegionName `json:"region"`
	OwnerEpoch int64      `json:"ownerEpoch"`
	Number     int64      `json:"number"`
	// WrittenAt is when somebody last wrote the object until then, by its owner's clock; zero from an older build. Versions also rise
	// without a write.
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	// Earlier is what that owner had taken over itself: a region may have missed some owners.
	Earlier *TookOver `json:"earlier,omitempty"`
}

// tookOverKept is how many owners are remembered.
const tookOverKept = 8

// Version is the version of the state.
func (t TookOver) Version() CopyVersion {
	return CopyVersion{OwnerEpoch: t.OwnerEpoch, Number: t.Number}
}

// After is the state with those that were taken over before it, as far as they are remembered.
func (t TookOver) After(earlier *TookOver) *TookOver {
	last := &t
	for range tookOverKept - 1 {
		if earlier == nil {
			break
		}
		one := *earlier
		last.Earlier, last, earlier = &one, &one, earlier.Earlier
	}
	last.Earlier = nil
	return &t
}

// Of is the last state of an owner that was taken over, nil if none is known.
func (t *TookOver) Of(owner RegionName) *TookOver {
	for t != nil && t.Region != owner {
		t = t.Earlier
	}
	return t
}

// Same reports whether two objects have the same owner, regions and fence.
func (s Syncing) Same(o Syncing) bool { return reflect.DeepEqual(s, o) }

// JSON is the syncing as objects store it.
func (s Syncing) JSON() json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return nil // it has texts and numbers only
	}
	return b
}

// HandOver is what a policy holder waits for while another region takes over.
type HandOver struct {
	To    string `json:"to"`
	Epoch int64  `json:"epoch,omitempty"`
	// Waits says what for.
	Waits string `json:"waits"`
	// Cancel: the operator wants the holder back, and the new owner has to renounce first.
	Cancel bool `json:"cancel,omitempty"`
}

// Renounce asks a region not to claim a policy holder in an epoch, or an earlier one.
type Renounce struct {
	Region RegionName `json:"region"` // that created the holder
	Kind   ObjectKind `json:"kind"`
	Name   string     `json:"name"`
	Epoch  int64      `json:"epoch"`
}

// Holder is the key of the policy holder.
func (r Renounce) Holder() ObjectKey { return ObjectKey{Kind: r.Kind, Name: r.Name} }

// Validate refuses what names no policy holder.
func (r Renounce) Validate() error {
	if !r.Kind.Declared().Holder {
		return Errorf(Invalid, "%.40q is not the kind of a policy holder", r.Kind).At("kind")
	}
	if r.Epoch < 1 {
		return Errorf(Invalid, "invalid epoch: want a number from 1").At("epoch")
	}
	if err := ValidateName("region", string(r.Region)); err != nil {
		return err
	}
	return ValidateName("name", r.Name)
}
