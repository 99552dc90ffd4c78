package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
)

const (
	tokenBytes   = 32
	defaultJoin  = int64(3600)
	maxJoin      = int64(30 * 24 * 3600)
	maxTokenLife = int64(10 * 365 * 24 * 3600)
	maxNote      = 200
)

type createInput struct{ MutationParams }

type tokenOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         api.Token
}

type tokensOutput struct{ Body api.List[api.Token] }

type revokeInput struct {
	ID string `path:"id"`
	MutationParams
}

func (s *server) mountTokens() {
	create := serve.Endpoint(http.MethodPost, "/api/v1/tokens", "create-token", "Make an API token; only this answer shows it")
	create.DefaultStatus = http.StatusCreated
	serve.Register(s.Server, serve.ForAdmins, create, s.createToken)
	serve.Takes[api.TokenRequest](s.Server, create)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodGet, "/api/v1/tokens", "list-tokens", "List API tokens, newest first"), s.listTokens)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodDelete, "/api/v1/tokens/{id}", "revoke-token", "End an API token"), s.revokeToken)

	join := serve.Endpoint(http.MethodPost, "/api/v1/join-tokens", "create-join-token", "Make a token that enrols one node once")
	join.DefaultStatus = http.StatusCreated
	serve.Register(s.Server, serve.ForAdmins, join, s.createJoinToken)
	serve.Takes[api.JoinTokenRequest](s.Server, join)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodGet, "/api/v1/join-tokens", "list-join-tokens", "List join tokens, newest first"), s.listJoinTokens)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodDelete, "/api/v1/join-tokens/{id}", "revoke-join-token", "Take a join token back"), s.revokeJoinToken)
}

func (s *server) createToken(ctx context.Context, in *createInput) (*tokenOutput, error) {
	var req api.TokenRequest
	_, err := s.ReadJSON(ctx, &req)
	if err != nil {
		return nil, err
	}
	row := keyring.APIToken{Role: req.Role, Note: req.Note, CreatedBy: serve.CallOf(ctx).Actor, CreatedAt: s.Now()}
	switch {
	case !serve.IsRole(req.Role) && req.Role != roleProvider:
		return nil, fleet.Errorf(fleet.Invalid, "unknown role %.20q; use admin, operator, viewer or provider", req.Role).At("/role")
	case req.Seconds < 0 || req.Seconds > maxTokenLife:
		return nil, fleet.Errorf(fleet.Invalid, "invalid lifetime: want 0 to %d seconds", maxTokenLife).At("/seconds")
	case len(req.Note) > maxNote:
		return nil, fleet.Errorf(fleet.Invalid, "the note has %d bytes; the limit is %d", len(req.Note), maxNote).At("/note")
	}
	if row.Namespaces, err = grantsOf(req); err != nil {
		return nil, err
	}
	if req.Project != "" {
		project, err := s.projectOf(ctx, req.Project, "")
		if err != nil {
			return nil, err
		}
		row.Project = project
	}
	if req.Seconds > 0 {
		at := s.Now().Add(time.Duration(req.Seconds) * time.Second)
		row.ExpiresAt = &at
	}
	token, hash, err := identity.NewToken(tokenBytes)
	if err != nil {
		return nil, err
	}
	row.Hash = hash[:]
	if !in.DryRun {
		if row, err = s.store.AddAPIToken(ctx, row); err != nil {
			return nil, err
		}
	}
	return tokenAnswer(tokenView(row), token, in.DryRun), nil
}

// roleProvider is a token's that opens the link and nothing here.
const roleProvider = "provider"

// maxGrants bounds the module namespaces of one token.
const maxGrants = 32

// grantsOf reads the module namespaces that a provider's token may claim.
func grantsOf(req api.TokenRequest) ([]fleet.ModuleNamespace, error) {
	const field = "/moduleNamespaces"
	if req.Role != roleProvider {
		if len(req.ModuleNamespaces) > 0 {
			return nil, fleet.Errorf(fleet.Invalid, "only provider tokens may have module namespaces").At(field)
		}
		return nil, nil
	}
	if req.Project != "" {
		return nil, fleet.Errorf(fleet.Invalid, "a provider token cannot have a project").At("/project")
	}
	if len(req.ModuleNamespaces) > maxGrants {
		return nil, fleet.Errorf(fleet.Invalid, "%d module namespaces given; the limit is %d", len(req.ModuleNamespaces), maxGrants).At(field)
	}
	var out []fleet.ModuleNamespace
	for _, n := range req.ModuleNamespaces {
		if err := fleet.ModuleNamespace(n).Validate(); err != nil {
			return nil, err
		}
		out = append(out, fleet.ModuleNamespace(n))
	}
	return out, nil
}

// tokenAnswer shows a token, this once.
func tokenAnswer(view api.Token, token string, dryRun bool) *tokenOutput { //nolint:revive // a dry run made no token to show
	if !dryRun {
		view.Token = token
	}
	return &tokenOutput{CacheControl: "no-store", Body: view}
}

func tokenView(t keyring.APIToken) api.Token {
	view := api.Token{
		ID: t.ID, Role: t.Role, Project: string(t.Project), Note: t.Note, CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt,
		ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	}
	for _, n := range t.Namespaces {
		view.ModuleNamespaces = append(view.ModuleNamespaces, string(n))
	}
	return view
}

func (s *server) listTokens(ctx context.Context, in *listInput) (*tokensOutput, error) {
	after, err := timePlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListAPITokens(ctx, fleet.ProjectName(in.Project), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(t keyring.APIToken) string { return timeCursor(t.CreatedAt, t.ID) })
	return tokensAnswer(cut, tokenView), nil
}

func tokensAnswer[T any](cut api.List[T], view func(T) api.Token) *tokensOutput {
	out := &tokensOutput{Body: api.List[api.Token]{Items: make([]api.Token, len(cut.Items)), Next: cut.Next}}
	for i, t := range cut.Items {
		out.Body.Items[i] = view(t)
	}
	return out
}

func (s *server) revokeToken(ctx context.Context, in *revokeInput) (*struct{}, error) {
	if in.DryRun {
		return nil, nil
	}
	if err := s.store.RevokeAPIToken(ctx, in.ID); err != nil {
		return nil, err
	}
	s.ForgetTokens()
	s.streams.check()
	s.waits.check()
	return nil, nil
}

func (s *server) createJoinToken(ctx context.Context, in *createInput) (*tokenOutput, error) {
	var req api.JoinTokenRequest
	if _, err := s.ReadJSON(ctx, &req); err != nil {
		return nil, err
	}
	if err := fleet.ValidateName("/site", req.Site); err != nil {
		return nil, err
	}
	if err := fleet.ValidateName("/node", req.Node); err != nil {
		return nil, err
	}
	if req.Seconds == 0 {
		req.Seconds = defaultJoin
	}
	if req.Seconds < 0 || req.Seconds > maxJoin {
		return nil, fleet.Errorf(fleet.Invalid, "invalid lifetime: want 1 to %d seconds", maxJoin).At("/seconds")
	}
	token, hash, err := identity.NewToken(tokenBytes)
	if err != nil {
		return nil, err
	}
	row := keyring.JoinToken{
		Hash: hash[:], Site: fleet.SiteName(req.Site), Node: fleet.NodeName(req.Node), CreatedBy: serve.CallOf(ctx).Actor, CreatedAt: s.Now(),
	}
	if !in.DryRun {
		if row, err = s.store.AddJoinToken(ctx, row, time.Duration(req.Seconds)*time.Second); err != nil {
			return nil, err
		}
	}
	return tokenAnswer(joinTokenView(row), token, in.DryRun), nil
}

func joinTokenView(t keyring.JoinToken) api.Token {
	view := api.Token{
		ID: t.ID, Site: string(t.Site), Node: string(t.Node), CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, UsedAt: t.UsedAt,
	}
	if !t.ExpiresAt.IsZero() {
		view.ExpiresAt = &t.ExpiresAt
	}
	return view
}

func (s *server) listJoinTokens(ctx context.Context, in *listInput) (*tokensOutput, error) {
	after, err := timePlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListJoinTokens(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(t keyring.JoinToken) string { return timeCursor(t.CreatedAt, t.ID) })
	return tokensAnswer(cut, joinTokenView), nil
}

func (s *server) revokeJoinToken(ctx context.Context, in *revokeInput) (*struct{}, error) {
	if in.DryRun {
		return nil, nil
	}
	return nil, s.store.DeleteJoinToken(ctx, in.ID)
}
