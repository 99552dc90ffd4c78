package link

import (
	"context"
	"crypto/ed25519"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// Identity is the proven identity of a caller. The zero value is none.
type Identity struct {
	Name       string         // node:NAME or token:ID
	Node       fleet.NodeName // "" if the provider is not a node
	Namespaces []fleet.ModuleNamespace
	Key        string // of a node: the one that signed, in base64
}

// MayClaim reports whether a module namespace was granted, by its name or one above it.
func (i Identity) MayClaim(n fleet.ModuleNamespace) bool {
	for _, granted := range i.Namespaces {
		if n == granted || strings.HasPrefix(string(n), string(granted)+".") {
			return true
		}
	}
	return false
}

type identityKey struct{}

// IdentityOf returns the caller; the interceptors admit no call without an identity.
func IdentityOf(ctx context.Context) Identity {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who
}

// DoorLink is the name of the link in refusals.
const DoorLink = "link"

// gate admits only callers with a proven identity.
type gate struct {
	store  identityStore
	crowds *crowds
	now    func() time.Time
	refuse func(audit.Refusal)
}

// tap runs when the headers of a call have arrived, before any of its message is read. Before its first call with a
// valid token, nothing of a connection is read or stored. Then it is admitted, and the token of each later call is
// checked when its message has arrived. gRPC reads nothing else of the connection until then.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	stranger := strangerOf(ctx)
	if stranger.Known() {
		return ctx, nil
	}
	soon, cancel := within(ctx)
	defer cancel()
	who, err := g.enter(soon, info.FullMethodName)
	if err != nil {
		return ctx, StatusOf(err)
	}
	stranger.Admit()
	return context.WithValue(ctx, identityKey{}, who), nil
}

// strangerOf returns the connection of a call.
func strangerOf(ctx context.Context) *strangers.Stranger {
	if p, ok := peer.FromContext(ctx); ok {
		return strangers.At(p.Addr)
	}
	return nil
}

// admitted returns the caller: as tap found it, or by the token of this call.
func (g *gate) admitted(ctx context.Context, method string) (Identity, error) {
	if who := IdentityOf(ctx); who.Name != "" {
		return who, nil
	}
	who, err := g.enter(ctx, method)
	if fleet.KindOf(err) == fleet.Unauthenticated && err != nil {
		strangerOf(ctx).Doubt()
	}
	return who, err
}

func (g *gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	who, err := g.admitted(ctx, info.FullMethod)
	if err != nil {
		return nil, StatusOf(err)
	}
	return next(context.WithValue(ctx, identityKey{}, who), req)
}

func (g *gate) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	who, err := g.admitted(ss.Context(), info.FullMethod)
	if err != nil {
		return StatusOf(err)
	}
	return next(srv, &knownStream{ss, context.WithValue(ss.Context(), identityKey{}, who)})
}

// knownStream is a stream with its caller's identity.
type knownStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC gives a handler its context by this method only
}

// Context has the identity.
func (s *knownStream) Context() context.Context { return s.ctx }

// enter authenticates the caller. The answer to a refused one does not tell why.
func (g *gate) enter(ctx context.Context, method string) (Identity, error) {
	token, err := bearer(ctx)
	if err != nil {
		g.refuse(audit.Refusal{Door: DoorLink, Reason: "no_token", What: method})
		return Identity{}, err
	}
	if strings.Count(token, ".") == 2 { // a random token has no dot
		return g.node(ctx, token, method)
	}
	return g.provider(ctx, token, method)
}

func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get("authorization") {
		scheme, token, found := strings.Cut(v, " ")
		if token = strings.TrimSpace(token); found && strings.EqualFold(scheme, "Bearer") && token != "" {
			return token, nil
		}
	}
	return "", fleet.Errorf(fleet.Unauthenticated, "the token is missing").WithHint("send authorization: Bearer TOKEN")
}

func (g *gate) node(ctx context.Context, token, method string) (Identity, error) {
	claimed := ""
	var trouble error
	var keys []ed25519.PublicKey
	claims, err := identity.VerifyByAny(identity.LinkAudience, token, func(name fleet.NodeName) ([]ed25519.PublicKey, error) {
		claimed = "?node:" + string(name)
		var err error
		if keys, err = g.crowds.keys.ask(ctx, string(name), name); err != nil && fleet.KindOf(err).Retryable() {
			trouble = err
		}
		if err == nil && len(keys) == 0 {
			err = fleet.Errorf(fleet.NotFound, "node %s is not enrolled", name)
		}
		return keys, err
	}, g.now())
	if err == nil && !claims.Key.Equal(keys[0]) {
		if err = g.store.UseKey(ctx, claims.Node, claims.Key); err != nil && fleet.KindOf(err).Retryable() {
			trouble = err
		}
	}
	switch {
	case trouble != nil: // the database's, not the node's
		return Identity{}, trouble
	case err != nil:
		g.refuse(audit.Refusal{Door: DoorLink, Identity: claimed, Reason: "node_token", What: method})
		return Identity{}, err
	}
	return Identity{Name: nodeIdentity(claims.Node), Node: claims.Node, Key: identity.EncodePublic(claims.Key)}, nil
}

func nodeIdentity(name fleet.NodeName) string { return "node:" + string(name) }

// roleProvider is the only role of tokens that the link knows.
const roleProvider = "provider"

func (g *gate) provider(ctx context.Context, token, method string) (Identity, error) {
	hash := identity.HashToken(token)
	row, err := g.crowds.tokens.ask(ctx, string(hash[:]), string(hash[:]))
	switch {
	case err != nil:
		return Identity{}, err
	case row == nil:
		g.refuse(audit.Refusal{Door: DoorLink, Reason: "unknown_token", What: method})
		return Identity{}, fleet.Errorf(fleet.Unauthenticated, "the token is unknown, expired or revoked").
			WithHint("send authorization: Bearer with a provider's token of this region")
	case row.Role != roleProvider:
		g.refuse(audit.Refusal{Door: DoorLink, Identity: tokenIdentity(*row), Reason: "role", What: method})
		return Identity{}, fleet.Errorf(fleet.Denied, "a token with role %s cannot use the link", row.Role).
			WithHint("holdfast token create --role provider --module-namespace NAMESPACE")
	}
	return Identity{Name: tokenIdentity(*row), Namespaces: row.Namespaces}, nil
}

func tokenIdentity(t keyring.APIToken) string { return "token:" + t.ID }
