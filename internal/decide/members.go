package decide

import (
	"bytes"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// MemberAction is what a region does with a record that a peer passed on.
type MemberAction string

// The actions on a record. A refused one is an alarm; an ignored one is old, or becomes useful once its signer is known.
const (
	MemberIgnore MemberAction = "ignore"
	MemberTake   MemberAction = "take"
	MemberRefuse MemberAction = "refuse"
)

// The rules that refuse a record; audit and logs name them.
const (
	RuleBadRecord    = "bad_record"
	RuleBadSignature = "bad_signature"
	RuleOtherKey     = "other_key"
	RuleOtherName    = "other_name"
)

// maxMembers limits what a member can make others store by admitting regions.
const maxMembers = 200

// MemberDecision is a record, what to do with it, and the rule that matched.
type MemberDecision struct {
	Record fleet.MemberRecord
	Do     MemberAction
	Rule   string
}

// memberCase is a record beside what is known of its name, its key and its signer; nil for nothing.
type memberCase struct {
	r                    fleet.MemberRecord
	named, keyed, signer *fleet.RegionMember
	count                int
}

// memberRules are in order, and the first match wins.
var memberRules = []struct {
	name string
	when func(memberCase) bool
	then MemberAction
}{
	{"own_record", func(c memberCase) bool { return c.same() && c.named.Self }, MemberIgnore},
	{RuleBadRecord, func(c memberCase) bool { return c.r.Validate() != nil || !c.r.OwnAddress() }, MemberRefuse},
	{"new_address", func(c memberCase) bool { return c.known() && c.r.AddressNumber > c.named.AddressNumber }, MemberTake},
	{"known", memberCase.known, MemberIgnore},
	{RuleOtherKey, func(c memberCase) bool { return c.named != nil && !c.named.Removed && !c.same() }, MemberRefuse},
	{RuleOtherName, func(c memberCase) bool { return c.keyed != nil && c.keyed.Name != c.r.Name }, MemberRefuse},
	{"removed", func(c memberCase) bool { return c.named != nil && c.r.Number <= c.named.Number }, MemberIgnore},
	{"unknown_signer", func(c memberCase) bool { return c.signer == nil || c.signer.Removed || c.signer.Disabled }, MemberIgnore},
	{RuleBadSignature, func(c memberCase) bool { return c.signer == nil || !c.r.AdmissionBy(c.signer.Key) }, MemberRefuse},
	{"full", func(c memberCase) bool { return c.named == nil && c.count >= maxMembers }, MemberIgnore},
	{"admitted", func(memberCase) bool { return true }, MemberTake},
}

// same: the name is known with this key.
func (c memberCase) same() bool { return c.named != nil && bytes.Equal(c.named.Key, c.r.Key) }

// known: the name is a member with this key, and this admission is not newer.
func (c memberCase) known() bool { return c.same() && !c.named.Removed && c.r.Number <= c.named.Number }

// Members decides on records that a peer passed on. A record may become acceptable by another one of the same list,
// so they are tried until none is taken any more.
func Members(known []fleet.RegionMember, records []fleet.MemberRecord) []MemberDecision {
	known = append([]fleet.RegionMember(nil), known...)
	out := make([]MemberDecision, len(records))
	for again := true; again; {
		again = false
		for i, r := range records {
			if out[i].Do == MemberTake {
				continue
			}
			out[i] = member(known, r)
			if out[i].Do == MemberTake {
				known = withMember(known, out[i].Record)
				again = true
			}
		}
	}
	return out
}

func member(known []fleet.RegionMember, r fleet.MemberRecord) MemberDecision {
	c := memberCase{r: r, count: len(known)}
	for i, m := range known {
		if m.Name == r.Name {
			c.named = &known[i]
		}
		if bytes.Equal(m.Key, r.Key) {
			c.keyed = &known[i]
		}
		if m.Name == r.AdmittedBy {
			c.signer = &known[i]
		}
	}
	for _, rule := range memberRules {
		if rule.when(c) {
			return MemberDecision{Record: c.merged(), Do: rule.then, Rule: rule.name}
		}
	}
	return MemberDecision{Record: r, Do: MemberIgnore}
}

// merged is the record with the newer of each part: of a known region, the admission stays unless this one is newer.
func (c memberCase) merged() fleet.MemberRecord {
	r := c.r
	if !c.same() {
		return r
	}
	if r.Number <= c.named.Number {
		r.Number, r.AdmittedBy, r.Admission = c.named.Number, c.named.AdmittedBy, c.named.Admission
	}
	if r.AddressNumber <= c.named.AddressNumber {
		r.Address, r.AddressNumber, r.AddressSignature = c.named.Address, c.named.AddressNumber, c.named.AddressSignature
	}
	return r
}

// withMember is the list after a record was taken. A removed region that was admitted again is a member like others.
func withMember(known []fleet.RegionMember, r fleet.MemberRecord) []fleet.RegionMember {
	for i, m := range known {
		if m.Name == r.Name {
			known[i] = fleet.RegionMember{MemberRecord: r, Self: m.Self, Disabled: m.Disabled && !m.Removed}
			return known
		}
	}
	return append(known, fleet.RegionMember{MemberRecord: r})
}

// Unfollowed are the peers that no run follows: those without a stream, or whose stream was seen too long ago. Each region follows each
// other one once (M14, M15).
func Unfollowed(peers []fleet.RegionName, seen map[fleet.RegionName]time.Duration, lost time.Duration) []fleet.RegionName {
	return slices.DeleteFunc(slices.Clone(peers), func(p fleet.RegionName) bool {
		ago, known := seen[p]
		return known && ago < lost
	})
}
