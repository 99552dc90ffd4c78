package identity

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

var now = time.Unix(1_800_000_000, 0)

func newKey(t *testing.T) Key {
	t.Helper()
	k, err := Generate("plant-1-a")
	require.NoError(t, err)
	return k
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	t.Run("is read back as it was saved, and only its owner may read it", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "node.key")
		k := newKey(t).Enrolled("eu-1")
		require.NoError(t, k.Save(path))
		require.NoError(t, k.Save(path), "a second save replaces the first")
		got, err := Load(path)
		require.NoError(t, err)
		require.Equal(t, k, got)
		require.Equal(t, "eu-1", got.Region())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, left, 1, "no temporary file is left")
	})
	t.Run("is refused when others may read it", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "node.key")
		require.NoError(t, newKey(t).Save(path))
		require.NoError(t, os.Chmod(path, 0o640))
		_, err := Load(path)
		require.Equal(t, fleet.Denied, fleet.KindOf(err))
	})
	t.Run("is not_found when missing and invalid when damaged, without being quoted", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "node.key")
		_, err := Load(path)
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
		require.NoError(t, os.WriteFile(path, []byte(`{"signing":"c2VjcmV0"}`), 0o600))
		_, err = Load(path)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		require.NotContains(t, err.Error(), "c2VjcmV0")
	})
	t.Run("does not print its secret", func(t *testing.T) {
		t.Parallel()
		k := newKey(t)
		for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k)} {
			require.Equal(t, "key of plant-1-a", s)
		}
	})
}

func TestNodeToken(t *testing.T) {
	t.Parallel()
	k, other := newKey(t), newKey(t)
	lookup := func(n fleet.NodeName) (ed25519.PublicKey, error) {
		if n != "plant-1-a" {
			return nil, fleet.Errorf(fleet.NotFound, "no node %s", n)
		}
		return k.SigningPublic(), nil
	}
	sign := func(t *testing.T, key Key, c jwt.RegisteredClaims) string {
		t.Helper()
		s, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(key.signing)
		require.NoError(t, err)
		return s
	}
	good := func() jwt.RegisteredClaims {
		return jwt.RegisteredClaims{
			Issuer: "plant-1-a", Audience: jwt.ClaimStrings{RegionAudience}, ID: "x",
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(MaxLifetime)),
		}
	}
	with := func(change func(*jwt.RegisteredClaims)) jwt.RegisteredClaims { c := good(); change(&c); return c }

	t.Run("is accepted from its node, and each has its own id", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for range 3 {
			token, err := k.Sign(RegionAudience, now)
			require.NoError(t, err)
			c, err := Verify(token, lookup, now.Add(time.Second))
			require.NoError(t, err)
			require.Equal(t, fleet.NodeName("plant-1-a"), c.Node)
			require.False(t, seen[c.ID])
			seen[c.ID] = true
		}
	})
	refused := map[string]string{
		"of another key":      sign(t, other, good()),
		"of an unknown node":  sign(t, k, with(func(c *jwt.RegisteredClaims) { c.Issuer = "plant-1-b" })),
		"of no node":          sign(t, k, with(func(c *jwt.RegisteredClaims) { c.Issuer = "../x" })),
		"for another":         sign(t, k, with(func(c *jwt.RegisteredClaims) { c.Audience = jwt.ClaimStrings{"peer"} })),
		"that never ends":     sign(t, k, with(func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil })),
		"that lives too long": sign(t, k, with(func(c *jwt.RegisteredClaims) { c.ExpiresAt = jwt.NewNumericDate(now.Add(time.Hour)) })),
		"without an id":       sign(t, k, with(func(c *jwt.RegisteredClaims) { c.ID = "" })),
		"from the future": sign(t, k, with(func(c *jwt.RegisteredClaims) {
			c.IssuedAt, c.ExpiresAt = jwt.NewNumericDate(now.Add(time.Minute)), jwt.NewNumericDate(now.Add(2*time.Minute))
		})),
		"that is not one": "abc",
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, good()).SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	refused["without a signature"] = none
	for name, token := range refused {
		t.Run("is refused "+name, func(t *testing.T) {
			t.Parallel()
			_, err := Verify(token, lookup, now)
			require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
			require.Equal(t, "node token refused", err.Error())
		})
	}
	t.Run("is refused after its minute", func(t *testing.T) {
		t.Parallel()
		token, err := k.Sign(RegionAudience, now)
		require.NoError(t, err)
		_, err = Verify(token, lookup, now.Add(MaxLifetime+clockSkew+time.Second))
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
	})
}

// N19
func TestToken(t *testing.T) {
	t.Parallel()
	t.Run("is random, URL-safe, of the asked length, and stored only as its hash", func(t *testing.T) {
		t.Parallel()
		a, hash, err := NewToken(32)
		require.NoError(t, err)
		b, _, err := NewToken(32)
		require.NoError(t, err)
		require.NotEqual(t, a, b)
		require.Len(t, a, 43)
		require.Empty(t, strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
		require.True(t, TokenMatches(a, hash[:]))
		require.False(t, TokenMatches(b, hash[:]))
		require.False(t, TokenMatches(a, nil))
	})
	t.Run("is refused when too short to be secret", func(t *testing.T) {
		t.Parallel()
		_, _, err := NewToken(8)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}

func TestSeal(t *testing.T) {
	t.Parallel()
	k := newKey(t)
	pub, err := k.SealingPublic()
	require.NoError(t, err)
	sealed, err := Seal(pub, "the-token")
	require.NoError(t, err)
	t.Run("opens with the key that it was sealed to", func(t *testing.T) {
		t.Parallel()
		require.NotContains(t, sealed, "the-token")
		token, err := k.Open(sealed)
		require.NoError(t, err)
		require.Equal(t, "the-token", token)
	})
	t.Run("does not open with another key or after a change", func(t *testing.T) {
		t.Parallel()
		_, err := newKey(t).Open(sealed)
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
		_, err = k.Open("AAAA" + sealed[4:])
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
		_, err = k.Open("%")
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
	})
	t.Run("public halves travel as base64 of 32 bytes", func(t *testing.T) {
		t.Parallel()
		back, err := DecodePublic("/sealingKey", EncodePublic(pub[:]))
		require.NoError(t, err)
		require.Equal(t, pub, back)
		_, err = DecodePublic("/sealingKey", "AAAA")
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}
