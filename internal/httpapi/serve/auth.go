package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// role orders what tokens may do: each may all that those below it may.
type role int

const (
	roleNone role = iota
	roleViewer
	roleOperator
	roleAdmin
)

// roleNames are the words of the contract.
var roleNames = map[string]role{"viewer": roleViewer, "operator": roleOperator, "admin": roleAdmin}

// IsRole says whether a token of these words may call the API.
func IsRole(name string) bool { return roleNames[name] != roleNone }

// Access says who may call an endpoint. What concerns the whole region is closed to tokens
// of one project, whatever their role.
type Access struct {
	least  role
	region bool
}

// Who may call an endpoint: whoever has at least this role.
var (
	ForViewers   = Access{least: roleViewer}
	ForOperators = Access{least: roleOperator}
	ForAdmins    = Access{least: roleAdmin, region: true}
	// ForAdminsOfAny also lets administrators of one project in, to what is theirs.
	ForAdminsOfAny = Access{least: roleAdmin}
	// ForRegionViewers and ForRegionOperators are for what is the region's, of no project.
	ForRegionViewers   = Access{least: roleViewer, region: true}
	ForRegionOperators = Access{least: roleOperator, region: true}
)

// Caller is who sent a request.
type Caller struct {
	Actor    string // as events and operations name it; no two tokens share one
	identity string // as refusals name it
	role     role
	Project  fleet.ProjectName // "" is every project
	Hash     [32]byte          // of the token
}

// May refuses a caller that an endpoint is not for.
func (c Caller) May(a Access) error {
	if c.role < a.least {
		for name, r := range roleNames {
			if r == a.least {
				return fleet.Errorf(fleet.Denied, "this token's role is too low").WithHint("it requires the role " + name)
			}
		}
	}
	if a.region && c.Project != "" {
		return c.Bound()
	}
	return nil
}

// Bound refuses what a token of one project does not reach.
func (c Caller) Bound() error {
	return fleet.Errorf(fleet.Denied, "this token is bound to project %s", c.Project).
		WithHint("this affects the whole region: use a token without a project")
}

// Sees says whether objects of a project exist for this caller.
func (c Caller) Sees(project fleet.ProjectName) bool { return c.Project == "" || c.Project == project }

// Uses says whether the caller's objects may refer to one of a project: what is in the
// default project is shared.
func (c Caller) Uses(project fleet.ProjectName) bool {
	return c.Project == "" || c.Project.Uses(project)
}

// Hides says whether secrets are kept from this caller.
func (c Caller) Hides() bool { return c.role < roleOperator }

// Call is one request with who sent it.
type Call struct {
	Caller
	w       http.ResponseWriter
	Request *http.Request
	share   string // whose share of the memory its body takes
	// Still is unauthenticated when what let the request in was taken back since; nil for what needs no token.
	Still func(context.Context) error
}

type callKey struct{}

// CallOf gives the request that a handler serves; authenticate put it there.
func CallOf(ctx context.Context) *Call {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return &Call{} // may nothing
	}
	return c
}

// NewCall is a request whose body takes its memory from a share.
func NewCall(w http.ResponseWriter, r *http.Request, share string) *Call {
	c := &Call{w: w, share: share}
	c.Request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	return c
}

// authenticate finds out who calls; what they may is decided per endpoint.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := Bearer(r)
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		who, err := s.tokens.find(r.Context(), identity.HashToken(token))
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		strangers.Of(r.Context()).Admit()
		c := NewCall(w, r, string(who.Hash[:]))
		c.Caller, c.Still = who, func(ctx context.Context) error {
			_, err := s.tokens.find(ctx, who.Hash)
			return err
		}
		next.ServeHTTP(w, c.Request)
	})
}

// Bearer reads the token from its header, the only place where one is looked for.
func Bearer(r *http.Request) (string, error) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", fleet.Errorf(fleet.Unauthenticated, "the token is missing").WithHint("send Authorization: Bearer TOKEN")
	}
	return token, nil
}

// allow is the middleware of one huma operation.
func (s *Server) allow(a Access) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if err := CallOf(ctx.Context()).May(a); err != nil {
			r, w := humachi.Unwrap(ctx)
			s.Refuse(w, r, err)
			return
		}
		next(ctx)
	}
}

// only is allow for a handler outside of the document.
func (s *Server) only(a Access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := CallOf(r.Context()).May(a); err != nil {
			s.Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tokenLife is how long a revoked token may still work on a server that did not revoke it.
const (
	tokenLife      = 500 * time.Millisecond
	maxCachedToken = 4096
)

type tokenReader interface {
	APITokenByHash(ctx context.Context, hash []byte) (keyring.APIToken, error)
}

// tokenCache spares the database the same question with every request.
type tokenCache struct {
	store tokenReader
	now   func() time.Time

	mu    sync.Mutex
	known map[[32]byte]knownToken
}

type knownToken struct {
	caller Caller
	until  time.Time
}

func newTokenCache(store tokenReader, now func() time.Time) *tokenCache {
	return &tokenCache{store: store, now: now, known: map[[32]byte]knownToken{}}
}

func (t *tokenCache) find(ctx context.Context, hash [32]byte) (Caller, error) {
	t.mu.Lock()
	k, found := t.known[hash]
	t.mu.Unlock()
	if found && t.now().Before(k.until) {
		return k.caller, nil
	}
	row, err := t.store.APITokenByHash(ctx, hash[:])
	if err != nil {
		return Caller{}, err
	}
	k = knownToken{until: t.now().Add(tokenLife), caller: Caller{
		Actor: actorOf(row.ID, row.Note), identity: "token:" + row.ID, role: roleNames[row.Role], Project: row.Project, Hash: hash,
	}}
	if row.ExpiresAt != nil && row.ExpiresAt.Before(k.until) {
		k.until = *row.ExpiresAt
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxCachedToken {
		clear(t.known)
	}
	t.known[hash] = k
	return k.caller, nil
}

// ForgetTokens makes a revocation felt at once on this server.
func (s *Server) ForgetTokens() {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	clear(s.tokens.known)
}

// actorOf names a token to people by its note, and exactly by its id: notes need not be unique, and ids that
// are made within a minute begin alike.
func actorOf(id, note string) string {
	if note == "" {
		return "token:" + id
	}
	return note + "@" + id
}
