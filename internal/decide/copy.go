package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// CopyStep is what becomes of a change that a peer sent.
type CopyStep string

// The steps.
const (
	CopyKeep   CopyStep = "keep"   // what is here stays
	CopyWrite  CopyStep = "write"  // the copy is written
	CopyEnd    CopyStep = "end"    // the copy goes, and a marker stays
	CopyMove   CopyStep = "move"   // the copy stays; another region answers for it
	CopyRefuse CopyStep = "refuse" // it is set aside, with a reason
)

// HeldCopy is what a region has of an object: a copy, or a marker that there is none any more. Its zero value is neither.
type HeldCopy struct {
	Known   bool
	Gone    bool // a marker
	Deleted bool // everywhere, not only here
	Owner   fleet.RegionName
	Version fleet.CopyVersion
	// Over is the policy that another owner, or what the peer created, is proven by; nil: that is not checked.
	Over *Over
}

// copyCase is one change beside what is held.
type copyCase struct {
	self, peer fleet.RegionName
	change     fleet.CopyChange
	share      fleet.Syncing // of an object
	held       HeldCopy
}

// newOwner: the peer is not the region that owned the object, as far as is known here.
func (c copyCase) newOwner() bool {
	if c.held.Known {
		return c.held.Owner != c.peer
	}
	return c.change.Key.Region != c.peer
}

// regional: the region that created the object owns it for life.
func (c copyCase) regional() bool { return !c.change.Key.Kind.Declared().Shared }

// ungoverned: nothing but its project and service could hold a policy over the object, and they never do.
func (c copyCase) ungoverned() bool {
	return c.change.Object != nil && c.regional() && c.change.Object.Project == fleet.DefaultProject
}

// unshared: no policy that is known here has what the peer created copied to this region.
func (c copyCase) unshared() bool {
	return c.regional() && c.held.Over != nil && !c.held.Over.Shares(c.change.Key.Kind, c.peer, c.self)
}

// older: what is held is as new, or newer. Of two regions that claimed the same epoch, the one with the higher name wins.
func (c copyCase) older() bool {
	if c.rival() {
		return c.peer < c.held.Owner
	}
	return c.held.Known && !c.change.Version.Newer(c.held.Version)
}

// claims: the peer says that it owns an object that this region created, or ends it. The policy has to prove that: see UnprovenOwner.
func (c copyCase) claims() bool {
	if c.change.Object != nil {
		return c.share.OwningRegion == string(c.peer)
	}
	return c.held.Over != nil
}

// rival: two regions claimed the object in the same epoch.
func (c copyCase) rival() bool {
	return c.held.Known && c.held.Owner != c.peer && c.held.Version.OwnerEpoch == c.change.Version.OwnerEpoch && c.held.Version.OwnerEpoch > 1 &&
		!c.passedOn()
}

// overtaken: another region owns the object since the peer may have.
func (c copyCase) overtaken() bool {
	return c.held.Known && c.held.Owner != c.peer && !c.rival() && c.change.Version.OwnerEpoch <= c.held.Version.OwnerEpoch
}

// handsOn: the owner names the next one, which is not this region.
func (c copyCase) handsOn() bool {
	return c.held.Known && c.held.Owner == c.peer && !c.regional() && c.change.MovedTo != "" && c.change.MovedTo != c.self
}

// passedOn: the last owner named the next one, of which this region has no state yet.
func (c copyCase) passedOn() bool {
	return c.held.Known && !c.held.Gone && c.held.Version.Number == fleet.MovedNumber
}

// unclaimed: the peer was asked whether it claimed what another region owns, and knows no higher epoch of it.
func (c copyCase) unclaimed() bool {
	return c.change.Seen != nil && c.change.Object == nil && c.held.Known && c.held.Owner != c.peer &&
		c.change.Version.OwnerEpoch <= c.held.Version.OwnerEpoch
}

// answered reports whether the owner answered this about the state that is held. Then it counts, whatever the versions
// say.
func (c copyCase) answered() bool {
	return c.change.Seen != nil && c.held.Known && c.held.Owner == c.peer && *c.change.Seen == c.held.Version
}

// copyRules are ordered, the first match wins. A version decides first, so that what comes late or twice does nothing
// (M31, M40); a region is trusted only with what it owns.
var copyRules = []struct {
	name string
	when func(c copyCase) bool
	then CopyStep
}{
	{"not_its_own", func(c copyCase) bool { // it owned the object, or lost a claim of it
		return (c.change.End == fleet.CopyRemoved || c.change.End == fleet.CopyMoved && !c.handsOn()) && c.change.Key.Region == c.self
	}, CopyKeep},
	{"never_its_own", copyCase.unclaimed, CopyKeep},
	{"own_object", func(c copyCase) bool { return c.change.Key.Region == c.self && c.regional() }, CopyRefuse},
	{"not_its_owner", func(c copyCase) bool { return c.regional() && c.change.Key.Region != c.peer }, CopyRefuse},
	{RivalLost, func(c copyCase) bool { return c.rival() && c.older() }, CopyKeep},
	{"older", func(c copyCase) bool { return c.older() && !c.answered() }, CopyKeep},
	{"gone", func(c copyCase) bool { // this region was restored to before it created the object
		return c.change.Key.Region == c.self && c.change.Object == nil && !c.held.Known
	}, CopyKeep},
	{"own_object", func(c copyCase) bool {
		return c.change.Key.Region == c.self && c.held.Owner != c.peer && !c.claims() && (c.change.Object != nil || !c.held.Gone)
	}, CopyRefuse},
	{"moved", copyCase.handsOn, CopyMove},
	{"moved", func(c copyCase) bool { return c.change.End == fleet.CopyMoved }, CopyKeep},
	{"not_its_owner", func(c copyCase) bool {
		return c.change.Object != nil && c.share.OwningRegion != string(c.peer)
	}, CopyRefuse},
	{"moved", func(c copyCase) bool { return c.overtaken() && (c.change.End == fleet.CopyRemoved || c.passedOn()) }, CopyKeep}, // said before it moved
	{"not_its_owner", copyCase.overtaken, CopyRefuse},
	{UnprovenOwner, func(c copyCase) bool {
		return c.newOwner() && c.held.Over != nil && !c.held.Over.Proves(c.self, c.peer)
	}, CopyRefuse},
	{"gone", func(c copyCase) bool { return c.change.Object == nil }, CopyEnd},
	{"not_here", func(c copyCase) bool { return c.change.Key.Region != c.self && !c.share.In(c.self) }, CopyEnd},
	{"ungoverned", copyCase.ungoverned, CopyRefuse},
	{NotShared, copyCase.unshared, CopyRefuse},
	{RivalWon, copyCase.rival, CopyWrite},
	{"newer", func(copyCase) bool { return true }, CopyWrite},
}

// The rules by which of two regions that claimed an object in one epoch the one with the higher name owns it (M38).
const (
	RivalWon  = "rival_won"
	RivalLost = "rival_lost"
)

// The rules for changes that wait for a policy: none that is known here gives the object to the peer, or has what the peer
// created copied to this region.
const (
	UnprovenOwner = "unproven_owner"
	NotShared     = "not_shared"
)

// Copy decides what a change of a peer does with what a region has, and names the rule.
func Copy(self, peer fleet.RegionName, change fleet.CopyChange, held HeldCopy) (CopyStep, string) {
	c := copyCase{self: self, peer: peer, change: change, held: held}
	if why := change.Refused(); why != "" {
		return CopyRefuse, why
	}
	if change.Object != nil {
		share, err := change.Object.Share()
		if err != nil {
			return CopyRefuse, "no_owner"
		}
		c.share = share
	}
	for _, r := range copyRules {
		if r.when(c) {
			return r.then, r.name
		}
	}
	return CopyRefuse, "unmatched"
}

// Trace is what a region has of an object that a peer asks about and that it does not share with the peer: a row that Owner owns, or the
// event by which it went, of which LastOwner is the region that ended it; without either, the number of Version is 0.
type Trace struct {
	Self, Asker, Owner, LastOwner fleet.RegionName
	Version                       fleet.CopyVersion
	// TookOver is what the region that ended it had taken over.
	TookOver *fleet.TookOver
	// Asked is the state that the peer has.
	Asked fleet.CopyVersion
	// Kept is up to which number events are no longer stored, and EraEnd up to which a restore kept those of the era of Asked.
	Kept     int64
	EraEnded bool
	EraEnd   int64
}

// Ended is what a region answers about such an object (M23, M33). How a copy went from here, the region that ended it answers. Without a
// trace, the version is that of the peer.
func Ended(t Trace) fleet.CopyChange {
	traced := t.Version.Number > 0
	switch ended := t.LastOwner == t.Self || t.LastOwner == ""; {
	case t.Owner != "" && t.Owner != t.Self:
		return fleet.CopyChange{Version: t.Version, End: fleet.CopyMoved, MovedTo: t.Owner}
	case t.Owner != "": // also one whose share ended while it was read
		return fleet.CopyChange{Version: t.Version, End: fleet.CopyRemoved}
	case traced && ended:
		return fleet.CopyChange{Version: t.Version, End: fleet.CopyDeleted, TookOver: t.TookOver}
	case traced && t.LastOwner != t.Asker:
		return fleet.CopyChange{Version: t.Version, End: fleet.CopyMoved, MovedTo: t.LastOwner}
	case traced:
		return fleet.CopyChange{Version: t.Asked, End: fleet.CopyUnknown}
	case t.Asked.Number <= t.Kept:
		return fleet.CopyChange{Version: t.Asked, End: fleet.CopyDeleted}
	case t.EraEnded && t.Asked.Number > t.EraEnd:
		return fleet.CopyChange{Version: t.Asked, End: fleet.CopyUndone}
	}
	return fleet.CopyChange{Version: t.Asked, End: fleet.CopyUnknown}
}

// Loses reports whether a change that is made replaces a state that the owner does not know.
func Loses(change fleet.CopyChange, held HeldCopy) bool {
	return change.Seen != nil && held.Known && (change.End == fleet.CopyUndone || held.Version.Newer(change.Version))
}

// Removals are what bounds the removals of one comparison: an owner that lost its data must not empty other regions.
type Removals struct {
	// Accept: an operator accepts all.
	Accept bool
	// Left is how many more may be removed without a proof.
	Left int64
	// Explained: by the policy as it is known here, this region has the object no more.
	Explained func() (bool, error)
}

// RemovalCap is how many copies one comparison takes away without a proof or an operator, for a number of objects: a tenth, and not
// fewer than 100.
func RemovalCap(objects int64) int64 { return max(objects/10, 100) }

// RemovalWithinCap is the rule by which a removal counts towards the cap.
const RemovalWithinCap = "within_cap"

// Remove decides whether a comparison takes a copy away, and names the rule. An end that is newer than the copy is by an event of the
// owner, which its stream would have brought. What the owner never knew waits for an operator: the owner may have lost it.
func Remove(c fleet.CopyChange, held HeldCopy, r Removals) (CopyStep, string, error) {
	switch {
	case r.Accept:
		return CopyEnd, "accepted", nil
	case c.End != fleet.CopyUnknown && c.Version.Newer(held.Version):
		return CopyEnd, "shown", nil
	case c.End != fleet.CopyUnknown && r.Left > 0:
		return CopyEnd, RemovalWithinCap, nil
	}
	explained, err := r.Explained()
	switch {
	case err != nil:
		return CopyRefuse, "", err
	case explained:
		return CopyEnd, "explained", nil
	case c.End == fleet.CopyUnknown:
		return CopyRefuse, "never_known", nil
	}
	return CopyRefuse, "above_cap", nil
}
