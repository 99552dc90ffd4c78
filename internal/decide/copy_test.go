package decide_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var sharedKey = fleet.ProjectKey("one")

func sharedBy(owner string, regions ...string) *fleet.Object {
	syncing, _ := json.Marshal(fleet.Syncing{OwningRegion: owner, Regions: regions})
	return &fleet.Object{
		ObjectKey: sharedKey, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "one", Generation: 1, Spec: json.RawMessage(`{}`), Syncing: syncing,
	}
}

// M16, M27, M29, M31, M40
func TestCopy(t *testing.T) {
	t.Parallel()
	at := func(epoch, number int64) fleet.CopyVersion {
		return fleet.CopyVersion{OwnerEpoch: epoch, Number: number}
	}
	held := func(owner fleet.RegionName, v fleet.CopyVersion) decide.HeldCopy {
		return decide.HeldCopy{Known: true, Owner: owner, Version: v}
	}
	over := func(h decide.HeldCopy, by decide.Over) decide.HeldCopy {
		h.Over = &by
		return h
	}
	for name, c := range map[string]struct {
		region fleet.RegionName
		object *fleet.Object
		end    fleet.CopyEnd
		v      fleet.CopyVersion
		held   decide.HeldCopy
		step   decide.CopyStep
		rule   string
	}{
		"a first state":                       {"eu", sharedBy("eu", "eu", "us"), "", at(1, 5), decide.HeldCopy{}, decide.CopyWrite, "newer"},
		"a newer state":                       {"eu", sharedBy("eu", "eu", "us"), "", at(1, 6), held("eu", at(1, 5)), decide.CopyWrite, "newer"},
		"the same state again":                {"eu", sharedBy("eu", "eu", "us"), "", at(1, 5), held("eu", at(1, 5)), decide.CopyKeep, "older"},
		"a state before the deletion":         {"eu", sharedBy("eu", "eu", "us"), "", at(1, 4), held("eu", at(1, 5)), decide.CopyKeep, "older"},
		"a state of a higher owner epoch":     {"ap", sharedBy("eu", "eu", "us"), "", at(2, 1), held("ap", at(1, 5)), decide.CopyWrite, "newer"},
		"a deletion":                          {"eu", nil, fleet.CopyDeleted, at(1, 6), held("eu", at(1, 5)), decide.CopyEnd, "gone"},
		"a deletion of what was not here":     {"eu", nil, fleet.CopyDeleted, at(1, 6), decide.HeldCopy{}, decide.CopyEnd, "gone"},
		"an old deletion":                     {"eu", nil, fleet.CopyDeleted, at(1, 4), held("eu", at(1, 5)), decide.CopyKeep, "older"},
		"an object that is not for here":      {"eu", sharedBy("eu", "eu", "ap"), "", at(1, 6), held("eu", at(1, 5)), decide.CopyEnd, "not_here"},
		"what another region owns":            {"ap", sharedBy("ap", "ap", "us"), "", at(1, 6), decide.HeldCopy{}, decide.CopyRefuse, "not_its_owner"},
		"a deletion of what another owns":     {"ap", nil, fleet.CopyDeleted, at(1, 6), held("ap", at(1, 5)), decide.CopyRefuse, "not_its_owner"},
		"an object of this region":            {"us", sharedBy("us", "us", "eu"), "", at(1, 6), decide.HeldCopy{}, decide.CopyRefuse, "own_object"},
		"a deletion of one of this region's":  {"us", nil, fleet.CopyDeleted, at(1, 6), held("us", at(1, 5)), decide.CopyRefuse, "own_object"},
		"one that is not here any more":       {"us", nil, fleet.CopyDeleted, at(2, 6), decide.HeldCopy{}, decide.CopyKeep, "gone"},
		"its deletion by an unproven owner":   {"us", nil, fleet.CopyDeleted, at(2, 6), over(held("us", at(1, 5)), decide.Over{Policy: policyOf("ap", "us", "ap")}), decide.CopyRefuse, "unproven_owner"},
		"its deletion by its new owner":       {"us", nil, fleet.CopyDeleted, at(2, 6), over(held("us", at(1, 5)), decide.Over{Policy: policyOf("eu", "us", "eu")}), decide.CopyEnd, "gone"},
		"a deletion whose holder went before": {"ap", nil, fleet.CopyDeleted, at(2, 6), over(held("ap", at(1, 5)), decide.Over{Owner: "eu"}), decide.CopyEnd, "gone"},
		"one that its former owner handed on": {"us", nil, fleet.CopyMoved, at(2, 6), held("us", at(1, 5)), decide.CopyKeep, "not_its_own"},
		"one whose claim was lost, and gone":  {"us", nil, fleet.CopyDeleted, at(2, 8), held("zz", at(2, 5)), decide.CopyKeep, "rival_lost"},
		"nonsense":                            {"eu", &fleet.Object{Syncing: json.RawMessage(`[]`)}, "", at(1, 6), decide.HeldCopy{}, decide.CopyRefuse, "malformed"},
	} {
		change := fleet.CopyChange{Key: fleet.CopyKey{Region: c.region, ObjectKey: sharedKey}, Version: c.v, End: c.end, Object: c.object}
		step, rule := decide.Copy("us", "eu", change, c.held)
		require.Equal(t, c.step, step, name)
		require.Equal(t, c.rule, rule, name)
	}
}

// M31, M40: in whatever order the states of an object arrive, and however often, the newest stays.
func TestCopyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Int64Range(1, 8).Draw(t, "states")
		ends := rapid.SliceOfN(rapid.Bool(), int(last), int(last)).Draw(t, "ends")
		states := make([]fleet.CopyChange, last)
		for i := range states {
			states[i] = fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: int64(i + 1)}}
			if ends[i] {
				states[i].End = fleet.CopyDeleted
			} else {
				states[i].Object = sharedBy("eu", "eu", "us")
			}
		}
		order := append(rapid.SliceOf(rapid.SampledFrom(states)).Draw(t, "before"), rapid.Permutation(states).Draw(t, "all")...)
		var held decide.HeldCopy
		exists := false
		for _, c := range order {
			switch step, _ := decide.Copy("us", "eu", c, held); step {
			case decide.CopyWrite:
				held, exists = decide.HeldCopy{Known: true, Owner: "eu", Version: c.Version}, true
			case decide.CopyEnd:
				held, exists = decide.HeldCopy{Known: true, Owner: "eu", Version: c.Version}, false
			case decide.CopyKeep, decide.CopyMove, decide.CopyRefuse:
			}
		}
		if held.Version.Number != last || exists == ends[last-1] {
			t.Fatalf("%+v, exists %t, after %d states %v", held, exists, last, ends)
		}
	})
}

// M23, M26, M31: what the owner answers about a state that is here counts whatever its version, unless something newer came
// meanwhile; a state that the owner does not know is lost.
func TestCopyAnswered(t *testing.T) {
	t.Parallel()
	at := func(number int64) *fleet.CopyVersion { return &fleet.CopyVersion{OwnerEpoch: 1, Number: number} }
	for name, c := range map[string]struct {
		object  *fleet.Object
		end     fleet.CopyEnd
		v, seen *fleet.CopyVersion
		held    *fleet.CopyVersion
		step    decide.CopyStep
		loses   bool
	}{
		"the same version, so the content differs": {sharedBy("eu", "eu", "us"), "", at(5), at(5), at(5), decide.CopyWrite, false},
		"an older state than here":                 {sharedBy("eu", "eu", "us"), "", at(4), at(5), at(5), decide.CopyWrite, true},
		"an older state, and a newer one came":     {sharedBy("eu", "eu", "us"), "", at(4), at(5), at(6), decide.CopyKeep, true},
		"an older state, and nobody asked":         {sharedBy("eu", "eu", "us"), "", at(4), nil, at(5), decide.CopyKeep, false},
		"a newer state":                            {sharedBy("eu", "eu", "us"), "", at(6), at(5), at(5), decide.CopyWrite, false},
		"gone, without a trace":                    {nil, fleet.CopyDeleted, at(5), at(5), at(5), decide.CopyEnd, false},
		"gone before":                              {nil, fleet.CopyDeleted, at(4), at(5), at(5), decide.CopyEnd, true},
		"undone by a restore":                      {nil, fleet.CopyUndone, at(5), at(5), at(5), decide.CopyEnd, true},
	} {
		change := fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: *c.v, End: c.end, Object: c.object, Seen: c.seen}
		held := decide.HeldCopy{Known: true, Owner: "eu", Version: *c.held}
		step, _ := decide.Copy("us", "eu", change, held)
		require.Equal(t, c.step, step, name)
		require.Equal(t, c.loses, decide.Loses(change, held), name)
	}
	before := fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: *at(4), Object: sharedBy("eu", "eu", "us"), Seen: at(5)}
	step, rule := decide.Copy("us", "eu", before, decide.HeldCopy{Known: true, Owner: "us", Version: *at(5)})
	require.Equal(t, []any{decide.CopyKeep, "older"}, []any{step, rule}, "of the one that owned it before, about what another one deleted")
	moved := fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: *at(6), End: fleet.CopyMoved, MovedTo: "ap", Seen: at(5)}
	step, _ = decide.Copy("us", "eu", moved, decide.HeldCopy{Known: true, Owner: "eu", Version: *at(5)})
	require.Equal(t, decide.CopyMove, step)
	moved.Key.Region = "us"
	for to, want := range map[fleet.RegionName]decide.CopyStep{"ap": decide.CopyMove, "us": decide.CopyKeep} {
		moved.MovedTo = to
		step, _ = decide.Copy("us", "eu", moved, decide.HeldCopy{Known: true, Owner: "eu", Version: *at(5)})
		require.Equal(t, want, step, "what us created moved to %s", to)
	}
	deleted := fleet.CopyChange{Key: moved.Key, Version: fleet.CopyVersion{OwnerEpoch: 2, Number: 1}, End: fleet.CopyDeleted}
	step, _ = decide.Copy("us", "eu", deleted, decide.HeldCopy{Known: true, Gone: true, Owner: "us", Version: *at(5)})
	require.Equal(t, decide.CopyEnd, step, "both deleted it")
	asked := fleet.CopyVersion{OwnerEpoch: 3, Number: 5}
	none := fleet.CopyChange{Key: moved.Key, Version: asked, End: fleet.CopyUnknown, Seen: &asked}
	step, _ = decide.Copy("eu", "us", none, decide.HeldCopy{Known: true, Owner: "eu", Version: asked, Over: &decide.Over{}})
	require.Equal(t, decide.CopyKeep, step, "us never claimed it from eu")
	claimed := fleet.CopyChange{Key: moved.Key, Version: fleet.CopyVersion{OwnerEpoch: 4, Number: 1}, End: fleet.CopyDeleted, Seen: &asked}
	step, _ = decide.Copy("eu", "us", claimed, decide.HeldCopy{Known: true, Owner: "eu", Version: asked, Over: &decide.Over{Policy: policyOf("us", "us", "eu"), Itself: true}})
	require.Equal(t, decide.CopyEnd, step, "us claimed it, and deleted it")
	passedOn := decide.HeldCopy{Known: true, Owner: "ap", Version: fleet.CopyVersion{OwnerEpoch: 2, Number: fleet.MovedNumber}}
	state := sharedBy("us", "us", "eu")
	for epoch := range int64(2) {
		c := fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: fleet.CopyVersion{OwnerEpoch: epoch + 1, Number: 9}, Object: state}
		step, _ = decide.Copy("eu", "us", c, passedOn)
		require.Equal(t, decide.CopyKeep, step, "what us had before it named ap")
	}
	late := fleet.CopyChange{Key: moved.Key, Version: *at(6), End: fleet.CopyRemoved}
	step, _ = decide.Copy("us", "eu", late, decide.HeldCopy{Known: true, Owner: "ap", Version: *at(5)})
	require.Equal(t, decide.CopyKeep, step, "what eu said before it moved")
}

// M23, M33: a region says only of what it ended itself that it is deleted.
func TestEnded(t *testing.T) {
	t.Parallel()
	asked, here := fleet.CopyVersion{OwnerEpoch: 1, Number: 5}, fleet.CopyVersion{OwnerEpoch: 2, Number: 9}
	took := &fleet.TookOver{Region: "us", OwnerEpoch: 1, Number: 5}
	for name, c := range map[string]struct {
		trace decide.Trace
		want  fleet.CopyChange
	}{
		"another region owns it":            {decide.Trace{Owner: "ap", Version: here}, fleet.CopyChange{Version: here, End: fleet.CopyMoved, MovedTo: "ap"}},
		"the peer owns it":                  {decide.Trace{Owner: "us", Version: here}, fleet.CopyChange{Version: here, End: fleet.CopyMoved, MovedTo: "us"}},
		"it is not for the peer":            {decide.Trace{Owner: "eu", Version: here}, fleet.CopyChange{Version: here, End: fleet.CopyRemoved}},
		"this region deleted it":            {decide.Trace{LastOwner: "eu", Version: here, TookOver: took}, fleet.CopyChange{Version: here, End: fleet.CopyDeleted, TookOver: took}},
		"another region ended the copy":     {decide.Trace{LastOwner: "ap", Version: here, TookOver: took}, fleet.CopyChange{Version: here, End: fleet.CopyMoved, MovedTo: "ap"}},
		"the peer itself ended the copy":    {decide.Trace{LastOwner: "us", Version: here, Kept: 7}, fleet.CopyChange{Version: asked, End: fleet.CopyUnknown}},
		"the event may have been collected": {decide.Trace{Kept: 5}, fleet.CopyChange{Version: asked, End: fleet.CopyDeleted}},
		"a restore undid it":                {decide.Trace{Kept: 1, EraEnded: true, EraEnd: 4}, fleet.CopyChange{Version: asked, End: fleet.CopyUndone}},
		"that era kept its number":          {decide.Trace{Kept: 1, EraEnded: true, EraEnd: 5}, fleet.CopyChange{Version: asked, End: fleet.CopyUnknown}},
		"nothing":                           {decide.Trace{}, fleet.CopyChange{Version: asked, End: fleet.CopyUnknown}},
	} {
		c.trace.Self, c.trace.Asker, c.trace.Asked = "eu", "us", asked
		require.Equal(t, c.want, decide.Ended(c.trace), name)
	}
}

// M33: a comparison takes away only so much by itself.
func TestRemove(t *testing.T) {
	t.Parallel()
	const none, explained, accepted = "", "explained", "accepted"
	for name, c := range map[string]struct {
		end   fleet.CopyEnd
		why   string
		left  int64
		shown bool
		step  decide.CopyStep
		rule  string
	}{
		"gone":                       {fleet.CopyDeleted, none, 1, false, decide.CopyEnd, decide.RemovalWithinCap},
		"too many":                   {fleet.CopyDeleted, none, 0, false, decide.CopyRefuse, "above_cap"},
		"too many, undone":           {fleet.CopyUndone, none, 0, false, decide.CopyRefuse, "above_cap"},
		"too many, by an event":      {fleet.CopyDeleted, none, 0, true, decide.CopyEnd, "shown"},
		"by an event":                {fleet.CopyDeleted, none, 1, true, decide.CopyEnd, "shown"},
		"too many, accepted":         {fleet.CopyDeleted, accepted, 0, false, decide.CopyEnd, "accepted"},
		"too many, by the policy":    {fleet.CopyRemoved, explained, 0, false, decide.CopyEnd, "explained"},
		"never known":                {fleet.CopyUnknown, none, 1, false, decide.CopyRefuse, "never_known"},
		"never known, of no event":   {fleet.CopyUnknown, none, 1, true, decide.CopyRefuse, "never_known"},
		"never known, accepted":      {fleet.CopyUnknown, accepted, 0, false, decide.CopyEnd, "accepted"},
		"never known, by the policy": {fleet.CopyUnknown, explained, 1, false, decide.CopyEnd, "explained"},
	} {
		ended := fleet.CopyChange{End: c.end, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 5}}
		held := decide.HeldCopy{Known: true, Version: ended.Version}
		if c.shown {
			ended.Version.Number = 6
		}
		step, rule, err := decide.Remove(ended, held, decide.Removals{
			Accept: c.why == accepted, Left: c.left, Explained: func() (bool, error) { return c.why == explained, nil },
		})
		require.NoError(t, err, name)
		require.Equal(t, c.step, step, name)
		require.Equal(t, c.rule, rule, name)
	}
}
