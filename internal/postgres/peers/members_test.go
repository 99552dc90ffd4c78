package peers_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// M30, X23
func TestAdmit(t *testing.T) {
	t.Parallel()
	t.Run("takes an invitation once, and the same key again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		token := b.invite("us", time.Minute)
		require.NoError(t, b.Admit(t.Context(), token, record("us", "us", 1, 1), signer()))
		first := b.member("us")
		require.Equal(t, self, first.AdmittedBy)
		require.True(t, first.AdmissionBy(record(self, self, 1, 1).Key))
		require.NoError(t, b.Admit(t.Context(), token, record("us", "us", 1, 1), signer()), "the answer was lost")
		require.Equal(t, first.MemberRecord, b.member("us").MemberRecord)
		stores.Refused(t, fleet.Unauthenticated, b.Admit(t.Context(), token, record("us", "us", 1, 2), signer()))
	})
	t.Run("by many servers at once makes one member", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		token := b.invite("us", time.Minute)
		require.NoError(t, stores.AtOnce(8, func(int) error { return b.Admit(t.Context(), token, record("us", "us", 1, 1), signer()) }))
		require.EqualValues(t, 1, b.member("us").Number)
	})
	t.Run("refuses what is expired, foreign, unknown or taken, and changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.NoError(t, b.Admit(t.Context(), b.invite("us", time.Minute), record("us", "us", 1, 1), signer()))
		for name, c := range map[string]struct {
			token  []byte
			record fleet.MemberRecord
			kind   fleet.Kind
		}{
			"an unknown token":          {make([]byte, 32), record("ap", "ap", 1, 1), fleet.Unauthenticated},
			"an expired token":          {b.invite("ap", -time.Minute), record("ap", "ap", 1, 1), fleet.Unauthenticated},
			"a token of another region": {b.invite("ap", time.Minute), record("br", "br", 1, 1), fleet.Denied},
			"a known name, another key": {b.invite("us", 2*time.Minute), record("us", "us", 1, 2), fleet.Conflict},
			"a known key, another name": {b.invite("br", time.Minute), recordAs("br", "us"), fleet.Conflict},
		} {
			before := stores.Scan[string](b, "SELECT string_agg(p::text, ';' ORDER BY name) FROM peers p")
			stores.Refused(t, c.kind, b.Admit(t.Context(), c.token, c.record, signer()))
			require.Equal(t, before, stores.Scan[string](b, "SELECT string_agg(p::text, ';' ORDER BY name) FROM peers p"), name)
		}
		_, err := b.Invite(t.Context(), peers.Invitation{Hash: make([]byte, 32), Region: self}, time.Minute)
		stores.Refused(t, fleet.Conflict, err)
	})
}

// recordAs is a record with the key of another region.
func recordAs(name, keyed fleet.RegionName) fleet.MemberRecord {
	r := record(keyed, keyed, 1, 1)
	r.Name = name
	return r.SignAddress(keyOf(keyed, 1))
}

// M14, M30
func TestTakeMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Admit(t.Context(), b.invite("us", time.Minute), record("us", "us", 1, 1), signer()))
	got, err := b.TakeMembers(t.Context(), []fleet.MemberRecord{record("br", "ap", 1, 1), record("ap", "us", 1, 1), record("us", "us", 2, 2)})
	require.NoError(t, err)
	require.Equal(t, []decide.MemberAction{decide.MemberTake, decide.MemberTake, decide.MemberRefuse}, []decide.MemberAction{got[0].Do, got[1].Do, got[2].Do})
	require.Equal(t, record("br", "ap", 1, 1), b.member("br").MemberRecord)
	require.Equal(t, keyOf("us", 1).Public(), b.member("us").Key)
}

// M30, M46: disabling keeps everything; removing is for a peer without copies, and an old record does not undo it.
func TestTurns(t *testing.T) {
	t.Parallel()
	admitted := func(t *testing.T) *bench {
		t.Helper()
		b := setup(t)
		require.NoError(t, b.Admit(t.Context(), b.invite("us", time.Minute), record("us", "us", 1, 1), signer()))
		require.NoError(t, b.SawPeer(t.Context(), "us", ""))
		return b
	}
	t.Run("disable, enable", func(t *testing.T) {
		t.Parallel()
		b := admitted(t)
		before := b.member("us")
		require.True(t, before.Reachable)
		require.NoError(t, b.DisablePeer(t.Context(), "us"))
		require.NoError(t, b.DisablePeer(t.Context(), "us"))
		_, err := b.TakeMembers(t.Context(), []fleet.MemberRecord{record("us", self, 2, 1)})
		require.NoError(t, err)
		require.True(t, b.member("us").Disabled, "a newer record does not enable it")
		require.NoError(t, b.EnablePeer(t.Context(), "us"))
		require.False(t, b.member("us").Disabled)
	})
	t.Run("a failed call says why, and keeps when the peer was seen", func(t *testing.T) {
		t.Parallel()
		b := admitted(t)
		seen := b.member("us").SeenAt
		require.NoError(t, b.SawPeer(t.Context(), "us", "it is down"))
		after := b.member("us")
		require.Equal(t, seen, after.SeenAt)
		require.False(t, after.Reachable)
		require.Equal(t, "it is down", after.Problem)
	})
	t.Run("remove, and join again with another key", func(t *testing.T) {
		t.Parallel()
		b := admitted(t)
		old := b.member("us").MemberRecord
		require.NoError(t, b.RemovePeer(t.Context(), "us"))
		stores.Refused(t, fleet.NotFound, b.RemovePeer(t.Context(), "us"))
		stores.Refused(t, fleet.NotFound, b.EnablePeer(t.Context(), "us"))
		got, err := b.TakeMembers(t.Context(), []fleet.MemberRecord{old})
		require.NoError(t, err)
		require.Equal(t, "removed", got[0].Rule)
		require.True(t, b.member("us").Removed)
		hash := make([]byte, 32)
		_, err = b.Invite(t.Context(), peers.Invitation{Hash: hash, Region: "us", CreatedBy: "x"}, time.Minute)
		require.NoError(t, err)
		require.NoError(t, b.Admit(t.Context(), hash, record("us", "us", 1, 2), signer()))
		again := b.member("us")
		require.False(t, again.Removed)
		require.EqualValues(t, 2, again.Number)
		require.Equal(t, keyOf("us", 2).Public(), again.Key)
	})
	t.Run("remove is refused while copies are kept", func(t *testing.T) {
		t.Parallel()
		b := admitted(t)
		with := peers.On(b.Store.Store).Counting(func(context.Context, *db.Queries, string) (int64, error) { return 3, nil })
		stores.Refused(t, fleet.Conflict, with.RemovePeer(t.Context(), "us"))
		require.False(t, b.member("us").Removed)
	})
	t.Run("this region is no peer", func(t *testing.T) {
		t.Parallel()
		b := admitted(t)
		for _, turn := range []func(context.Context, fleet.RegionName) error{b.DisablePeer, b.EnablePeer, b.RemovePeer} {
			stores.Refused(t, fleet.Invalid, turn(t.Context(), self))
		}
	})
}

// M30: the region that joins vouches for the one that admitted it, and takes its members.
func TestJoined(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := record(self, "eu", 1, 1)
	decisions, err := b.Joined(t.Context(), own, record("eu", "eu", 1, 1), []fleet.MemberRecord{record("us", "eu", 1, 1), own}, signer())
	require.NoError(t, err)
	require.Equal(t, decide.MemberTake, decisions[0].Do)
	require.Equal(t, self, b.member("eu").AdmittedBy)
	require.Equal(t, fleet.RegionName("eu"), b.member("us").AdmittedBy)
	require.Equal(t, own, b.member(self).MemberRecord)
	_, err = b.Joined(t.Context(), own, record("eu", "eu", 1, 1), nil, signer())
	require.NoError(t, err, "again")
	_, err = b.Joined(t.Context(), record(self, "eu", 1, 2), record("eu", "eu", 1, 1), nil, signer())
	stores.Refused(t, fleet.Communication, err)
	_, err = b.Joined(t.Context(), own, record("eu", "eu", 1, 2), nil, signer())
	stores.Refused(t, fleet.Conflict, err)
	_, err = b.Joined(t.Context(), own, record(self, "eu", 1, 2), nil, signer())
	stores.Refused(t, fleet.Conflict, err)
}

// M30: an address that changed gets a higher number; one that did not is not written.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	moved := func(r fleet.MemberRecord) fleet.MemberRecord {
		r.Address, r.AddressNumber = "https://test:2", r.AddressNumber+1
		return r.SignAddress(keyOf(self, 1))
	}
	require.NoError(t, b.Announce(t.Context(), moved))
	require.Equal(t, "https://test:2", b.member(self).Address)
	require.EqualValues(t, 2, b.member(self).AddressNumber)
	require.True(t, b.member(self).Self)
	require.NoError(t, b.Announce(t.Context(), func(r fleet.MemberRecord) fleet.MemberRecord { return r }))
	require.EqualValues(t, 2, b.member(self).AddressNumber)
}
