package fleet_test

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M30: neither part of a record can be changed without its signer.
func TestMemberRecord(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	member, by, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	good := fleet.MemberRecord{Name: "us", Key: public, Number: 2, Address: "https://us:1", AddressNumber: 3}.SignAddress(key).SignAdmission("eu", by)
	require.True(t, good.OwnAddress())
	require.True(t, good.AdmissionBy(member))
	require.False(t, good.AdmissionBy(public))
	require.False(t, good.AdmissionBy(nil))
	for name, change := range map[string]func(*fleet.MemberRecord){
		"name":   func(r *fleet.MemberRecord) { r.Name = "ap" },
		"key":    func(r *fleet.MemberRecord) { r.Key = member },
		"number": func(r *fleet.MemberRecord) { r.Number++ },
		"signer": func(r *fleet.MemberRecord) { r.AdmittedBy = "ap" },
	} {
		r := good
		change(&r)
		require.False(t, r.AdmissionBy(member), name)
	}
	for name, change := range map[string]func(*fleet.MemberRecord){
		"name":    func(r *fleet.MemberRecord) { r.Name = "ap" },
		"key":     func(r *fleet.MemberRecord) { r.Key = member },
		"number":  func(r *fleet.MemberRecord) { r.AddressNumber++ },
		"address": func(r *fleet.MemberRecord) { r.Address = "https://us:2" },
	} {
		r := good
		change(&r)
		require.False(t, r.OwnAddress(), name)
	}
}

func TestValidatePeerAddress(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://127.0.0.1:7462", "https://eu.example.com:443", "https://[::1]:1"} {
		require.NoError(t, fleet.ValidatePeerAddress("/address", good), good)
	}
	for _, bad := range []string{
		"", "eu:1", "http://eu:1", "https://eu", "https://eu:0", "https://eu:70000", "https://eu:1/x", "https://u:p@eu:1", "https://eu:1?x", "https://:1",
	} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(fleet.ValidatePeerAddress("/address", bad)), bad)
	}
}
