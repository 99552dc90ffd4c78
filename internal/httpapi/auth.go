package httpapi

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
	"github.com/holdfast-io/holdfast/internal/postgres"
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

// isRole says whether a token of these words may call the API.
func isRole(name string) bool { return roleNames[name] != roleNone }

// access says who may call an endpoint. What concerns the whole region is closed to tokens
// of one project, whatever their role.
type access struct {
	least  role
	region bool
}

var (
	forViewers   = access{least: roleViewer}
	forOperators = access{least: roleOperator}
	forAdmins    = access{least: roleAdmin, region: true}
	// forAdminsOfAny also lets administrators of one project in, to what is theirs.
	forAdminsOfAny = access{least: roleAdmin}
	// What providers are concerned with is the region's, of no project.
	forRegionViewers   = access{least: roleViewer, region: true}
	forRegionOperators = access{least: roleOperator, region: true}
)

// caller is who sent a request.
type caller struct {
	actor    string // as events and operations name it; no two tokens share one
	identity string // as refusals name it
	role     role
	project  fleet.ProjectName // "" is every project
	hash     [32]byte          // of the token
}

func (c caller) may(a access) error {
	if c.role < a.least {
		for name, r := range roleNames {
			if r == a.least {
				return fleet.Errorf(fleet.Denied, "this token's role is too low").WithHint("it requires the role " + name)
			}
		}
	}
	if a.region && c.project != "" {
		return c.bound()
	}
	return nil
}

// bound refuses what a token of one project does not reach.
func (c caller) bound() error {
	return fleet.Errorf(fleet.Denied, "this token is bound to project %s", c.project).
		WithHint("this affects the whole region: use a token without a project")
}

// sees says whether objects of a project exist for this caller.
func (c caller) sees(project fleet.ProjectName) bool { return c.project == "" || c.project == project }

// uses says whether the caller's objects may refer to one of a project: what is in the
// default project is shared.
func (c caller) uses(project fleet.ProjectName) bool {
	return c.project == "" || c.project.Uses(project)
}

// hides says whether secrets are kept from this caller.
func (c caller) hides() bool { return c.role < roleOperator }

// call is one request with who sent it.
type call struct {
	caller
	w       http.ResponseWriter
	request *http.Request
	share   string // whose share of the memory its body takes
	// still is unauthenticated when what let the request in was taken back since; nil for what needs no token.
	still func(context.Context) error
}

type callKey struct{}

// callOf gives the request that a handler serves; authenticate put it there.
func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return &call{} // may nothing
	}
	return c
}

// newCall is a request whose body takes its memory from a share.
func newCall(w http.ResponseWriter, r *http.Request, share string) *call {
	c := &call{w: w, share: share}
	c.request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	return c
}

// authenticate finds out who calls; what they may is decided per endpoint.
func (s *core) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := bearer(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		who, err := s.tokens.find(r.Context(), identity.HashToken(token))
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		strangers.Of(r.Context()).Admit()
		c := newCall(w, r, string(who.hash[:]))
		c.caller, c.still = who, func(ctx context.Context) error {
			_, err := s.tokens.find(ctx, who.hash)
			return err
		}
		next.ServeHTTP(w, c.request)
	})
}

// bearer reads the token from its header, the only place where one is looked for.
func bearer(r *http.Request) (string, error) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", fleet.Errorf(fleet.Unauthenticated, "the token is missing").WithHint("send Authorization: Bearer TOKEN")
	}
	return token, nil
}

// allow is the middleware of one huma operation.
func (s *core) allow(a access) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if err := callOf(ctx.Context()).may(a); err != nil {
			r, w := humachi.Unwrap(ctx)
			s.refuse(w, r, err)
			return
		}
		next(ctx)
	}
}

// only is allow for a handler outside of the document.
func (s *core) only(a access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := callOf(r.Context()).may(a); err != nil {
			s.refuse(w, r, err)
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
	APITokenByHash(ctx context.Context, hash []byte) (postgres.APIToken, error)
}

// tokenCache spares the database the same question with every request.
type tokenCache struct {
	store tokenReader
	now   func() time.Time

	mu    sync.Mutex
	known map[[32]byte]knownToken
}

type knownToken struct {
	caller caller
	until  time.Time
}

func newTokenCache(store tokenReader, now func() time.Time) *tokenCache {
	return &tokenCache{store: store, now: now, known: map[[32]byte]knownToken{}}
}

func (t *tokenCache) find(ctx context.Context, hash [32]byte) (caller, error) {
	t.mu.Lock()
	k, found := t.known[hash]
	t.mu.Unlock()
	if found && t.now().Before(k.until) {
		return k.caller, nil
	}
	row, err := t.store.APITokenByHash(ctx, hash[:])
	if err != nil {
		return caller{}, err
	}
	k = knownToken{until: t.now().Add(tokenLife), caller: caller{
		actor: actorOf(row.ID, row.Note), identity: "token:" + row.ID, role: roleNames[row.Role], project: row.Project, hash: hash,
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

// forgetTokens makes a revocation felt at once on this server.
func (s *core) forgetTokens() {
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
