package decide_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// regionKeyOf is the key of a region; each number is another key of the same name.
func regionKeyOf(name fleet.RegionName, number int) ed25519.PrivateKey {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, number))
	return ed25519.NewKeyFromSeed(seed[:])
}

// recordOf is a region's record with its first key, admitted by another region with its first key.
func recordOf(name, by fleet.RegionName, number int64) fleet.MemberRecord {
	return recordWith(name, by, number, regionKeyOf(name, 1))
}

func recordWith(name, by fleet.RegionName, number int64, key ed25519.PrivateKey) fleet.MemberRecord {
	return fleet.MemberRecord{
		Name: name, Key: key.Public().(ed25519.PublicKey), Number: number, Address: "https://" + string(name) + ":1", AddressNumber: 1,
	}.SignAddress(key).SignAdmission(by, regionKeyOf(by, 1))
}

func movedTo(r fleet.MemberRecord, address string, number int64, key ed25519.PrivateKey) fleet.MemberRecord {
	r.Address, r.AddressNumber = address, number
	return r.SignAddress(key)
}

// M14, M15, M30: which records of other regions a region takes.
func TestMembers(t *testing.T) {
	t.Parallel()
	known := func() []fleet.RegionMember {
		return []fleet.RegionMember{
			{MemberRecord: recordOf("eu", "eu", 1), Self: true},
			{MemberRecord: recordOf("us", "eu", 1)},
			{MemberRecord: recordOf("off", "eu", 1), Disabled: true},
			{MemberRecord: recordOf("gone", "eu", 3), Removed: true},
		}
	}
	usKey := regionKeyOf("us", 1)
	for name, c := range map[string]struct {
		r    fleet.MemberRecord
		do   decide.MemberAction
		rule string
	}{
		"a new region that a member admitted":         {recordOf("ap", "us", 1), decide.MemberTake, "admitted"},
		"a new region that this one admitted":         {recordOf("ap", "eu", 1), decide.MemberTake, "admitted"},
		"what is known":                               {recordOf("us", "eu", 1), decide.MemberIgnore, "known"},
		"a newer address":                             {movedTo(recordOf("us", "eu", 1), "https://us:2", 2, usKey), decide.MemberTake, "new_address"},
		"an older address":                            {movedTo(recordOf("us", "eu", 1), "https://us:2", 1, usKey), decide.MemberIgnore, "known"},
		"an address that another key signed":          {movedTo(recordOf("us", "eu", 1), "https://us:2", 2, regionKeyOf("ap", 1)), decide.MemberRefuse, decide.RuleBadRecord},
		"a signature that is not of the named signer": {recordOf("ap", "us", 1).SignAdmission("us", regionKeyOf("ap", 1)), decide.MemberRefuse, decide.RuleBadSignature},
		"another key under a known name":              {recordWith("us", "us", 9, regionKeyOf("us", 2)), decide.MemberRefuse, decide.RuleOtherKey},
		"another key under this region's name":        {recordWith("eu", "us", 9, regionKeyOf("eu", 2)), decide.MemberRefuse, decide.RuleOtherKey},
		"a known key under another name":              {recordWith("ap", "us", 1, usKey), decide.MemberRefuse, decide.RuleOtherName},
		"an unknown signer":                           {recordOf("ap", "nobody", 1), decide.MemberIgnore, "unknown_signer"},
		"a disabled signer":                           {recordOf("ap", "off", 1), decide.MemberIgnore, "unknown_signer"},
		"a removed signer":                            {recordOf("ap", "gone", 1), decide.MemberIgnore, "unknown_signer"},
		"a removed region's old record":               {recordOf("gone", "us", 3), decide.MemberIgnore, "removed"},
		"a removed region that was admitted again":    {recordWith("gone", "us", 4, regionKeyOf("gone", 2)), decide.MemberTake, "admitted"},
		"a removed region that admits itself":         {recordOf("gone", "gone", 4), decide.MemberIgnore, "unknown_signer"},
		"this region's own record":                    {recordOf("eu", "us", 7), decide.MemberIgnore, "own_record"},
		"a malformed record":                          {fleet.MemberRecord{Name: "../x"}, decide.MemberRefuse, decide.RuleBadRecord},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decide.Members(known(), []fleet.MemberRecord{c.r})
			require.Len(t, got, 1)
			require.Equal(t, c.do, got[0].Do)
			require.Equal(t, c.rule, got[0].Rule)
		})
	}
	t.Run("a chain of admissions is taken in any order", func(t *testing.T) {
		t.Parallel()
		got := decide.Members(known(), []fleet.MemberRecord{recordOf("c", "b", 1), recordOf("b", "a", 1), recordOf("a", "us", 1)})
		for _, d := range got {
			require.Equal(t, decide.MemberTake, d.Do, d.Record.Name)
		}
	})
	t.Run("a mesh that is full takes no more", func(t *testing.T) {
		t.Parallel()
		all := known()
		for i := len(all); i < 199; i++ {
			all = append(all, fleet.RegionMember{MemberRecord: fleet.MemberRecord{Name: fleet.RegionName(fmt.Sprintf("r%d", i)), Key: regionKeyOf("r", i).Public().(ed25519.PublicKey)}})
		}
		got := decide.Members(all, []fleet.MemberRecord{recordOf("a", "us", 1), recordOf("b", "us", 1)})
		require.Equal(t, []string{"admitted", "full"}, []string{got[0].Rule, got[1].Rule})
	})
	t.Run("a new address leaves the admission as it is", func(t *testing.T) {
		t.Parallel()
		moved := movedTo(recordOf("us", "nobody", 1), "https://us:2", 2, usKey)
		got := decide.Members(known(), []fleet.MemberRecord{moved})[0]
		require.Equal(t, decide.MemberTake, got.Do)
		require.Equal(t, fleet.RegionName("eu"), got.Record.AdmittedBy)
		require.True(t, got.Record.AdmissionBy(regionKeyOf("eu", 1).Public().(ed25519.PublicKey)))
		require.Equal(t, "https://us:2", got.Record.Address)
	})
}

// M15, X23: regions that join one after the other, each through any member, all know each other once each has heard
// of all others by any path, in any order and however often. Then N regions follow N-1 each, and N(N-1) in all.
func TestMembersCompleteTheMesh(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(2, 5).Draw(t, "regions")
		names := make([]fleet.RegionName, count)
		known := map[fleet.RegionName][]fleet.RegionMember{}
		for i := range names {
			names[i] = fleet.RegionName(fmt.Sprintf("r%d", i))
			known[names[i]] = []fleet.RegionMember{{MemberRecord: recordOf(names[i], names[i], 1), Self: true}}
		}
		hear := func(to fleet.RegionName, records []fleet.MemberRecord) {
			for _, d := range decide.Members(known[to], records) {
				require.NotEqual(t, decide.MemberRefuse, d.Do, "%+v", d)
				if d.Do == decide.MemberTake {
					known[to] = append(known[to], fleet.RegionMember{MemberRecord: d.Record})
				}
			}
		}
		records := func(of fleet.RegionName) (out []fleet.MemberRecord) {
			for _, m := range known[of] {
				out = append(out, m.MemberRecord)
			}
			return out
		}
		for i, name := range names[1:] {
			through := names[rapid.IntRange(0, i).Draw(t, "through")]
			known[through] = append(known[through], fleet.RegionMember{MemberRecord: recordOf(name, through, 1)})
			known[name] = append(known[name], fleet.RegionMember{MemberRecord: recordOf(through, name, 1)})
			hear(name, records(through))
			if rapid.Bool().Draw(t, "talk") {
				hear(names[rapid.IntRange(0, i).Draw(t, "to")], records(names[rapid.IntRange(0, i).Draw(t, "from")]))
			}
		}
		total := func() (n int) {
			for _, name := range names {
				n += len(known[name])
			}
			return n
		}
		for before := 0; before != total(); { // each hears each peer that it knows, until nobody learns anything
			before = total()
			for _, to := range names {
				for _, m := range append([]fleet.RegionMember(nil), known[to]...) {
					if m.Name != to && len(known[to]) < count {
						hear(to, records(m.Name))
					}
				}
			}
		}
		watches := 0
		for _, name := range names {
			require.Len(t, known[name], count, name)
			var peers []fleet.RegionName
			for _, m := range known[name] {
				if !m.Self {
					peers = append(peers, m.Name)
				}
			}
			follows := decide.Unfollowed(peers, nil, time.Second)
			require.ElementsMatch(t, slices.DeleteFunc(slices.Clone(names), func(n fleet.RegionName) bool { return n == name }), follows)
			watches += len(follows)
		}
		require.Equal(t, count*(count-1), watches)
	})
}

// M14, M15, M30: each peer is followed by one run: a new one gets it, one whose run was lost gets another, and one that was removed none.
func TestUnfollowed(t *testing.T) {
	t.Parallel()
	const lost = 15 * time.Second
	peers := []fleet.RegionName{"ap", "br", "eu", "us"}
	seen := map[fleet.RegionName]time.Duration{"ap": 0, "br": lost - 1, "eu": lost, "removed": time.Hour}
	require.Equal(t, []fleet.RegionName{"eu", "us"}, decide.Unfollowed(peers, seen, lost))
	require.Equal(t, peers, decide.Unfollowed(peers, nil, lost))
	require.Empty(t, decide.Unfollowed(nil, seen, lost))
}
