package peers

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Invitation lets one region join once.
type Invitation struct {
	ID        string
	Hash      []byte
	Region    fleet.RegionName
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    *time.Time
}

func invitationOf(r db.RegionInvitation) Invitation {
	return Invitation{r.ID, r.Hash, fleet.RegionName(r.Region), r.CreatedBy, r.CreatedAt, r.ExpiresAt, r.UsedAt}
}

// Invite stores the hash of an invitation's token.
func (s *Store) Invite(ctx context.Context, in Invitation, life time.Duration) (Invitation, error) {
	if string(in.Region) == s.Region {
		return in, fleet.Errorf(fleet.Conflict, "region %s is this region itself", in.Region).At("/name").
			WithHint("invite the region that joins; its servers have another --region")
	}
	id, err := postgres.NewID()
	if err != nil {
		return in, err
	}
	row, err := s.Q.InsertInvitation(ctx, db.InsertInvitationParams{
		ID: id, Hash: in.Hash, Region: string(in.Region), CreatedBy: in.CreatedBy, Seconds: life.Seconds(),
	})
	return invitationOf(row), err
}

// ListInvitations lists newest first, after a place ("" is the start).
func (s *Store) ListInvitations(ctx context.Context, after postgres.Place, limit int32) ([]Invitation, error) {
	after = after.OrStart()
	rows, err := s.Q.ListInvitations(ctx, db.ListInvitationsParams{BeforeAt: after.At, BeforeID: after.ID, MaxRows: limit})
	out := make([]Invitation, len(rows))
	for i, r := range rows {
		out[i] = invitationOf(r)
	}
	return out, err
}

// DeleteInvitation voids an invitation; a region that used it stays a member.
func (s *Store) DeleteInvitation(ctx context.Context, id string) error {
	n, err := s.Q.DeleteInvitation(ctx, id)
	if err == nil && n == 0 {
		return postgres.OrNotFound(nil, "region invitation", id, "holdfast region invitation list")
	}
	return err
}

// Signer is this region's name with its key.
type Signer struct {
	Name fleet.RegionName
	Key  ed25519.PrivateKey
}

// Admit makes the region that shows an invitation's token a member. The same key may repeat it.
func (s *Store) Admit(ctx context.Context, tokenHash []byte, r fleet.MemberRecord, by Signer) error {
	if _, err := usable(ctx, s.Q, tokenHash, r); err != nil { // strangers take no lock
		return err
	}
	return s.change(ctx, func(q *db.Queries, known []fleet.RegionMember) error {
		in, err := usable(ctx, q, tokenHash, r)
		if err != nil {
			return err
		}
		if in.Region != string(r.Name) {
			return fleet.Errorf(fleet.Denied, "the invitation is for region %s, not %s", in.Region, r.Name).At("/token").
				WithHint("make one for it on the admitting region: holdfast region invite " + string(r.Name))
		}
		if err := vouch(ctx, q, known, r, by); err != nil {
			return err
		}
		return q.UseInvitation(ctx, db.UseInvitationParams{ID: in.ID, UsedBy: r.Key})
	})
}

// usable finds the invitation of a token that no other region has used.
func usable(ctx context.Context, q *db.Queries, tokenHash []byte, r fleet.MemberRecord) (db.RegionInvitation, error) {
	in, err := q.ValidInvitation(ctx, tokenHash)
	if postgres.NoRows(err) || err == nil && in.UsedBy != nil && !bytes.Equal(in.UsedBy, r.Key) {
		return in, fleet.Errorf(fleet.Unauthenticated, "the invitation is unknown, used or expired").At("/token").
			WithHint("make a new one on the admitting region: holdfast region invite NAME")
	}
	return in, err
}

// vouch signs a region's name and key, and stores the record. A known one keeps its admission.
func vouch(ctx context.Context, q *db.Queries, known []fleet.RegionMember, r fleet.MemberRecord, by Signer) error {
	r.Number = 1
	at := named(known, r.Name)
	if at != nil {
		r.Number = at.Number + 1
	}
	switch {
	case at != nil && at.Self:
		return fleet.Errorf(fleet.Conflict, "both regions are called %s", r.Name).At("/name").
			WithHint("region names are unique: start one of them with another --region, on a new database")
	case at != nil && !at.Removed && !bytes.Equal(at.Key, r.Key):
		return fleet.Errorf(fleet.Conflict, "region %s is known with another key", r.Name).At("/key").
			WithHint("if it was set up anew, first remove it on every region: holdfast region remove " + string(r.Name))
	case at != nil && !at.Removed:
		return take(ctx, q, decide.Members(known, []fleet.MemberRecord{atNumber(r, at.Number)}))
	}
	for _, m := range known {
		if bytes.Equal(m.Key, r.Key) && m.Name != r.Name {
			return fleet.Errorf(fleet.Conflict, "this key belongs to region %s", m.Name).At("/key").
				WithHint("a region keeps its name; each region needs a database of its own")
		}
	}
	return save(ctx, q, fleet.RegionMember{MemberRecord: r.SignAdmission(by.Name, by.Key)})
}

func atNumber(r fleet.MemberRecord, number int64) fleet.MemberRecord { r.Number = number; return r }

// Joined stores what an admitting region answered: this region's own record as admitted, and all members. This
// region vouches for the one that admitted it: the token pinned its key.
func (s *Store) Joined(ctx context.Context, own, admitter fleet.MemberRecord, all []fleet.MemberRecord, by Signer) ([]decide.MemberDecision, error) {
	var out []decide.MemberDecision
	err := s.change(ctx, func(q *db.Queries, known []fleet.RegionMember) error {
		self := named(known, by.Name)
		if self == nil || !bytes.Equal(self.Key, own.Key) || own.Name != by.Name {
			return fleet.Errorf(fleet.Communication, "the admitting region answered with a record that is not of this region").WithHint("check --token and the address")
		}
		if err := vouch(ctx, q, known, admitter, by); err != nil {
			return err
		}
		self.Number, self.AdmittedBy, self.Admission = own.Number, own.AdmittedBy, own.Admission
		if err := save(ctx, q, *self); err != nil {
			return err
		}
		all = append(all, admitter)
		rows, err := q.ListMembers(ctx)
		if err != nil {
			return err
		}
		out = decide.Members(membersOf(rows), all)
		return take(ctx, q, out)
	})
	return out, err
}
