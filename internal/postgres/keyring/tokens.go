package keyring

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// APIToken is what the region keeps of a bearer token: never the token.
type APIToken struct {
	ID        string
	Hash      []byte
	Role      string
	Project   fleet.ProjectName
	Note      string
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// Namespaces are the module namespaces that a provider's token may claim.
	Namespaces []fleet.ModuleNamespace
}

func apiTokenOf(r db.ApiToken) APIToken {
	out := APIToken{
		ID: r.ID, Hash: r.Hash, Role: r.Role, Project: fleet.ProjectName(r.Project), Note: r.Note,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
	}
	for _, n := range r.ModuleNamespaces {
		out.Namespaces = append(out.Namespaces, fleet.ModuleNamespace(n))
	}
	return out
}

// AddAPIToken stores a token's hash; the same hash again changes only its note.
func (s *Store) AddAPIToken(ctx context.Context, t APIToken) (APIToken, error) {
	id, err := postgres.NewID()
	if err != nil {
		return t, err
	}
	p := db.InsertAPITokenParams{
		ID: id, Hash: t.Hash, Role: t.Role, Project: string(t.Project), Note: t.Note, CreatedBy: t.CreatedBy, ExpiresAt: t.ExpiresAt,
		ModuleNamespaces: []string{},
	}
	for _, n := range t.Namespaces {
		p.ModuleNamespaces = append(p.ModuleNamespaces, string(n))
	}
	var row db.ApiToken
	err = s.Tx(ctx, func(q *db.Queries) error {
		if t.Project != "" {
			if err := postgres.KeepProject(ctx, q, t.Project); err != nil {
				return err
			}
		}
		var err error
		row, err = q.InsertAPIToken(ctx, p)
		return err
	})
	return apiTokenOf(row), err
}

// APITokenByHash finds a token that is neither expired nor revoked.
func (s *Store) APITokenByHash(ctx context.Context, hash []byte) (APIToken, error) {
	all, err := s.APITokensByHash(ctx, [][]byte{hash})
	if err != nil {
		return APIToken{}, err
	}
	t, is := all[string(hash)]
	if !is {
		return APIToken{}, fleet.Errorf(fleet.Unauthenticated, "this token is unknown, expired or revoked").
			WithHint("send Authorization: Bearer with a token of this region")
	}
	return t, nil
}

// APITokensByHash finds those of many tokens that are neither expired nor revoked, by hash.
func (s *Store) APITokensByHash(ctx context.Context, hashes [][]byte) (map[string]APIToken, error) {
	rows, err := s.Q.APITokensByHash(ctx, hashes)
	out := make(map[string]APIToken, len(rows))
	for _, row := range rows {
		out[string(row.Hash)] = apiTokenOf(row)
	}
	return out, err
}

// ListAPITokens lists newest first, of one project or of all, after a place ("" is the start).
func (s *Store) ListAPITokens(ctx context.Context, project fleet.ProjectName, after postgres.Place, limit int32) ([]APIToken, error) {
	after = after.OrStart()
	rows, err := s.Q.ListAPITokens(ctx, db.ListAPITokensParams{
		Project: string(project), BeforeAt: after.At, BeforeID: after.ID, MaxRows: limit,
	})
	out := make([]APIToken, len(rows))
	for i, r := range rows {
		out[i] = apiTokenOf(r)
	}
	return out, err
}

// RevokeAPIToken ends a token now.
func (s *Store) RevokeAPIToken(ctx context.Context, id string) error {
	n, err := s.Q.RevokeAPIToken(ctx, id)
	if err == nil && n == 0 {
		return postgres.OrNotFound(nil, "token", id, "holdfast token list")
	}
	return err
}

// JoinToken lets one node enrol once.
type JoinToken struct {
	ID        string
	Hash      []byte
	Site      fleet.SiteName
	Node      fleet.NodeName
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    *time.Time
}

func joinTokenOf(r db.JoinToken) JoinToken {
	return JoinToken{r.ID, r.Hash, fleet.SiteName(r.Site), fleet.NodeName(r.Node), r.CreatedBy, r.CreatedAt, r.ExpiresAt, r.UsedAt}
}

// AddJoinToken stores the hash of a join token for a declared node.
func (s *Store) AddJoinToken(ctx context.Context, t JoinToken, life time.Duration) (JoinToken, error) {
	n, err := s.Q.GetNode(ctx, string(t.Node))
	if postgres.NoRows(err) || err == nil && (n.Site != string(t.Site) || n.RemovedAt != nil) {
		return t, postgres.OrNotFound(nil, "node", string(t.Site)+"/"+string(t.Node), "declare it in its site first")
	}
	if err != nil {
		return t, err
	}
	id, err := postgres.NewID()
	if err != nil {
		return t, err
	}
	row, err := s.Q.InsertJoinToken(ctx, db.InsertJoinTokenParams{
		ID: id, Hash: t.Hash, Site: string(t.Site), Node: string(t.Node), CreatedBy: t.CreatedBy, Seconds: life.Seconds(),
	})
	return joinTokenOf(row), err
}

// ListJoinTokens lists newest first, after a place ("" is the start).
func (s *Store) ListJoinTokens(ctx context.Context, after postgres.Place, limit int32) ([]JoinToken, error) {
	after = after.OrStart()
	rows, err := s.Q.ListJoinTokens(ctx, db.ListJoinTokensParams{BeforeAt: after.At, BeforeID: after.ID, MaxRows: limit})
	out := make([]JoinToken, len(rows))
	for i, r := range rows {
		out[i] = joinTokenOf(r)
	}
	return out, err
}

// DeleteJoinToken takes a join token back.
func (s *Store) DeleteJoinToken(ctx context.Context, id string) error {
	n, err := s.Q.DeleteJoinToken(ctx, id)
	if err == nil && n == 0 {
		return postgres.OrNotFound(nil, "join token", id, "holdfast join-token list")
	}
	return err
}
