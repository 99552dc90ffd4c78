package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M38: a state that the new owner of an object never had is lost.
func TestClaimedLoses(t *testing.T) {
	t.Parallel()
	written, later := time.Unix(1, 0), time.Unix(2, 0)
	at := func(number int64) fleet.CopyVersion { return fleet.CopyVersion{OwnerEpoch: 1, Number: number} }
	has := func(number int64, when time.Time) *fleet.Object {
		return &fleet.Object{ObjectKey: sharedKey, UID: "old", Version: at(number), ResourceVersion: number, UpdatedAt: when}
	}
	took := func(owner fleet.RegionName, number int64) *fleet.TookOver {
		return &fleet.TookOver{Region: owner, OwnerEpoch: 1, Number: number, WrittenAt: written}
	}
	same, other := &fleet.Object{UID: "old"}, &fleet.Object{UID: "new"}
	refreshed := has(9, later)
	refreshed.ResourceVersion = 5
	for name, row := range map[string]struct {
		owner   fleet.RegionName // of what is here, in us
		held    int64
		was     *fleet.Object
		deleted bool
		took    *fleet.TookOver
		object  *fleet.Object // nil: eu deleted it
		same    bool
		loses   bool
	}{
		"mine, as it was taken over":                        {owner: "us", held: 5, was: has(5, written), took: took("us", 5), object: same},
		"mine, written after that":                          {owner: "us", held: 6, was: has(6, later), took: took("us", 5), object: same, loses: true},
		"mine, written after that with the same content":    {owner: "us", held: 6, was: has(6, later), took: took("us", 5), object: same, same: true},
		"mine, and only its syncing was refreshed":          {owner: "us", held: 9, was: refreshed, took: took("us", 5), object: same},
		"mine, written after that, and deleted there":       {owner: "us", held: 6, was: has(6, later), took: took("us", 5), loses: true},
		"mine, of which the new owner had no state of mine": {owner: "us", held: 5, was: has(5, written), took: took("ap", 5), object: same, loses: true},
		"mine, deleted by one that may have it from ap":     {owner: "us", held: 5, was: has(5, written), took: took("ap", 5)},
		"mine, deleted here after that":                     {owner: "us", held: 6, took: took("us", 5), object: same, loses: true},
		"mine, and nothing was taken over":                  {owner: "us", held: 5, was: has(5, written), object: same},
		"mine, and another of the name was made":            {owner: "us", held: 5, was: has(5, written), object: other, loses: true},

		"of the peer": {owner: "eu", held: 6, was: has(6, later), took: took("eu", 5), object: same},
		"of the last owner, as it was taken over":         {owner: "ap", held: 5, was: has(5, written), took: took("ap", 5), object: same},
		"of the last owner, written after that":           {owner: "ap", held: 6, was: has(6, later), took: took("ap", 5), object: same, loses: true},
		"of the last owner, refreshed after that":         {owner: "ap", held: 6, was: has(6, written), took: took("ap", 5), object: same},
		"of the last owner, with the same content":        {owner: "ap", held: 6, was: has(6, later), took: took("ap", 5), object: same, same: true},
		"of the last owner, and deleted by the new one":   {owner: "ap", held: 6, was: has(6, later), took: took("ap", 5), loses: true},
		"of a last owner that deleted it after that":      {owner: "ap", held: 6, deleted: true, took: took("ap", 5), object: same, loses: true},
		"of a last owner that shares it no more":          {owner: "ap", held: 6, took: took("ap", 5), object: same},
		"of a last owner of which nothing was taken over": {owner: "ap", held: 6, was: has(6, later), took: took("us", 5), object: same},
		"new": {object: same},
	} {
		claimed := decide.Claimed{
			Self: "us", Peer: "eu", Was: row.was, Same: row.same,
			Held:   decide.HeldCopy{Known: row.owner != "", Owner: row.owner, Version: at(row.held), Deleted: row.deleted, Gone: row.owner != "" && row.was == nil},
			Change: fleet.CopyChange{Version: fleet.CopyVersion{OwnerEpoch: 2, Number: 3}, Object: row.object, TookOver: row.took},
		}
		require.Equal(t, row.loses, claimed.Loses(), name)
	}
}
