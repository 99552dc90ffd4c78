package peers_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self is the region of stores.Bare.
const self = fleet.RegionName("test")

// bench is a region that has announced itself.
type bench struct{ *stores.Bench }

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{stores.Bare(t)}
	require.NoError(t, b.Announce(t.Context(), func(fleet.MemberRecord) fleet.MemberRecord { return record(self, self, 1, 1) }))
	return b
}

// keyOf is the key of a region; each number is another key of the same name.
func keyOf(name fleet.RegionName, number int) ed25519.PrivateKey {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, number))
	return ed25519.NewKeyFromSeed(seed[:])
}

// record is that of a region with one of its keys, admitted by another one.
func record(name, by fleet.RegionName, number int64, key int) fleet.MemberRecord {
	k := keyOf(name, key)
	return fleet.MemberRecord{
		Name: name, Key: k.Public().(ed25519.PublicKey), Number: number, Address: "https://" + string(name) + ":1", AddressNumber: 1,
	}.SignAddress(k).SignAdmission(by, keyOf(by, 1))
}

func signer() peers.Signer { return peers.Signer{Name: self, Key: keyOf(self, 1)} }

// invite gives the hash of an invitation's token.
func (b *bench) invite(region fleet.RegionName, life time.Duration) []byte {
	b.T.Helper()
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %v %s", region, life, b.T.Name()))
	_, err := b.Invite(b.Ctx(), peers.Invitation{Hash: hash[:], Region: region, CreatedBy: "x"}, life)
	require.NoError(b.T, err)
	return hash[:]
}

func (b *bench) member(name fleet.RegionName) peers.Member {
	b.T.Helper()
	all, err := b.Members(b.Ctx())
	require.NoError(b.T, err)
	for _, m := range all {
		if m.Name == name {
			return m
		}
	}
	return peers.Member{}
}
