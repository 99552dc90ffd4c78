package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// RegionAudience is whom a node's bulk requests speak to.
const RegionAudience = "holdfast-region"

// LinkAudience is whom a node's calls over the link speak to.
const LinkAudience = "holdfast-link"

// MaxLifetime bounds a node's JWT: a stolen one is worth a minute.
const MaxLifetime = 60 * time.Second

// clockSkew is how far a node's clock may be off.
const clockSkew = 10 * time.Second

// Claims are what a verified token says.
type Claims struct {
	Node    fleet.NodeName
	ID      string // jti, unique per token
	Expires time.Time
	Key     ed25519.PublicKey // that it verified with
}

// Lookup gives the signing key that a region has on record for a node; an unknown or
// revoked node is not_found.
type Lookup func(node fleet.NodeName) (ed25519.PublicKey, error)

// Sign makes a token of the longest allowed lifetime, to be used at once.
func (k Key) Sign(aud string, now time.Time) (string, error) {
	id, _, err := NewToken(16)
	if err != nil {
		return "", err
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.RegisteredClaims{
		Issuer:    string(k.node),
		Audience:  jwt.ClaimStrings{aud},
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(MaxLifetime)),
		ID:        id,
	}).SignedString(k.signing)
	if err != nil {
		return "", fmt.Errorf("sign node token: %w", err)
	}
	return token, nil
}

// Verify checks a node's token for the region. Whatever is wrong with it, the answer says
// only unauthenticated; the cause is in the chain, for the log.
func Verify(token string, lookup Lookup, now time.Time) (Claims, error) {
	return VerifyFor(RegionAudience, token, lookup, now)
}

// VerifyFor is Verify for another audience.
func VerifyFor(aud, token string, lookup Lookup, now time.Time) (Claims, error) {
	return VerifyByAny(aud, token, func(node fleet.NodeName) ([]ed25519.PublicKey, error) {
		key, err := lookup(node)
		return []ed25519.PublicKey{key}, err
	}, now)
}

// LookupAll gives all signing keys that a node may use at the moment: two while it changes
// its key, in the order in which they are tried.
type LookupAll func(node fleet.NodeName) ([]ed25519.PublicKey, error)

// VerifyByAny is VerifyFor where any of several keys will do; the claims say which did.
func VerifyByAny(aud, token string, lookup LookupAll, now time.Time) (Claims, error) {
	var claims jwt.RegisteredClaims
	var keys []ed25519.PublicKey
	used := 0
	parse := func() error {
		claims = jwt.RegisteredClaims{}
		return parseInto(&claims, aud, token, now, func() (any, error) {
			if keys != nil {
				return keys[used], nil
			}
			var err error
			if keys, err = lookup(fleet.NodeName(claims.Issuer)); err == nil && len(keys) == 0 {
				err = fleet.Errorf(fleet.NotFound, "node %s has no key", claims.Issuer)
			}
			if err != nil {
				return nil, err
			}
			return keys[0], nil
		})
	}
	err := parse()
	for err != nil && errors.Is(err, jwt.ErrTokenSignatureInvalid) && used+1 < len(keys) {
		used++
		err = parse()
	}
	if err == nil {
		err = checkLifetime(claims)
	}
	if err != nil {
		return Claims{}, &fleet.Error{Kind: fleet.Unauthenticated, Message: "node token refused", Err: err}
	}
	return Claims{Node: fleet.NodeName(claims.Issuer), ID: claims.ID, Expires: claims.ExpiresAt.Time, Key: keys[used]}, nil
}

func parseInto(claims *jwt.RegisteredClaims, aud, token string, now time.Time, key func() (any, error)) error {
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) {
		if err := fleet.ValidateName("iss", claims.Issuer); err != nil {
			return nil, err
		}
		return key()
	},
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithAudience(aud),
		jwt.WithIssuedAt(), jwt.WithExpirationRequired(), jwt.WithLeeway(clockSkew),
		jwt.WithTimeFunc(func() time.Time { return now }))
	return err
}

// checkLifetime refuses what a correct node never signs, however long it says it lives.
func checkLifetime(c jwt.RegisteredClaims) error {
	switch {
	case c.IssuedAt == nil || c.ID == "":
		return errors.New("iat or jti is missing")
	case c.ExpiresAt.Sub(c.IssuedAt.Time) > MaxLifetime:
		return errors.New("it lives longer than is allowed")
	}
	return nil
}

// Claimed is the node that a token says it is of, unproven, for an audit; "" when it says none.
func Claimed(token string) fleet.NodeName {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || fleet.ValidateName("iss", claims.Issuer) != nil {
		return ""
	}
	return fleet.NodeName(claims.Issuer)
}
