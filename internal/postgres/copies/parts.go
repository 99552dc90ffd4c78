package copies

import (
	"context"
	"encoding/json"
	"io"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// MissingParts looks for what a copied template is composed of.
func (s *Store) MissingParts(ctx context.Context, name fleet.TemplateName, spec fleet.TemplateSpec) (missing fleet.TemplateParts, err error) {
	name = name.In(fleet.RegionName(s.Region))
	err = s.Tx(ctx, func(q *db.Queries) error {
		missing, err = missingParts(ctx, q, name, spec)
		return err
	})
	return missing, err
}

// KeepGeneration stores a generation that a copied template merges. It is a conflict while parts of it are missing.
func (s *Store) KeepGeneration(ctx context.Context, pin fleet.TemplatePin, raw json.RawMessage) error {
	spec, err := fleet.ReadCopiedTemplate(pin.Name, raw)
	if err != nil {
		return err
	}
	return s.Tx(ctx, func(q *db.Queries) error {
		missing, err := missingParts(ctx, q, pin.Name, spec)
		if err != nil {
			return err
		}
		if !missing.None() {
			return fleet.Errorf(fleet.Conflict, "parts of template %s are not here", pin.Name)
		}
		return q.InsertTemplateGeneration(ctx, db.InsertTemplateGenerationParams{
			Name: string(pin.Name), Generation: pin.Generation, Spec: raw,
		})
	})
}

// bodyID names the upload of a body that comes from a peer. No upload of a user has such an id.
func bodyID(h fleet.Hash) string { return "copy:" + string(h) }

// BodyReceived is how much is here of a body on its way from a peer.
func (s *Store) BodyReceived(ctx context.Context, h fleet.Hash) (int64, error) {
	if err := s.StartOwnUpload(ctx, bodyID(h)); err != nil {
		return 0, err
	}
	u, err := s.GetUpload(ctx, bodyID(h))
	return u.Received, err
}

// AppendBody stores a part of a body; what a cut left of a chunk is sent again.
func (s *Store) AppendBody(ctx context.Context, h fleet.Hash, offset int64, r io.Reader, last bool) error {
	_, err := s.AppendUpload(ctx, bodyID(h), offset, r, last)
	return err
}

// FinishBody checks the bytes, and keeps them under their hash. No project may refer to them by it.
func (s *Store) FinishBody(ctx context.Context, h fleet.Hash) error {
	_, err := s.FinishUpload(ctx, bodyID(h), h)
	if fleet.KindOf(err) == fleet.HashMismatch {
		if err := s.DropUpload(ctx, bodyID(h)); err != nil {
			return err
		}
	}
	return err
}

// RestartBody forgets what is here of a body.
func (s *Store) RestartBody(ctx context.Context, h fleet.Hash) error {
	return s.DropUpload(ctx, bodyID(h))
}
