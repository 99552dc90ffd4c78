package peers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Member is a region that this one knows, itself included.
type Member struct {
	fleet.RegionMember
	AddedAt time.Time
	SeenAt  *time.Time
	// Reachable: the last call succeeded, a moment ago. Problem is why the last call failed.
	Reachable bool
	Problem   string
	// About is what a peer last said of itself.
	About fleet.RegionAbout
}

// Members lists all regions that were ever known, by name.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	rows, err := s.Q.ListMembers(ctx)
	out := make([]Member, len(rows))
	for i, r := range rows {
		out[i] = Member{RegionMember: memberOf(r), AddedAt: r.AddedAt, SeenAt: r.SeenAt, Reachable: r.Reachable, Problem: r.Problem}
		if err := json.Unmarshal(r.About, &out[i].About); err != nil {
			return nil, postgres.Unreadable("what a region tells of itself", err)
		}
	}
	return out, err
}

func memberOf(r db.ListMembersRow) fleet.RegionMember {
	return fleet.RegionMember{
		MemberRecord: fleet.MemberRecord{
			Name: fleet.RegionName(r.Name), Key: r.PublicKey, Number: r.Number, AdmittedBy: fleet.RegionName(r.AdmittedBy),
			Admission: r.Admission, Address: r.Address, AddressNumber: r.AddressNumber, AddressSignature: r.AddressSignature,
		},
		Self: r.Self, Disabled: r.DisabledAt != nil, Removed: r.RemovedAt != nil,
	}
}

func membersOf(rows []db.ListMembersRow) []fleet.RegionMember {
	out := make([]fleet.RegionMember, len(rows))
	for i, r := range rows {
		out[i] = memberOf(r)
	}
	return out
}

// change runs f on the members as they are then. No other change of them runs at the same time.
func (s *Store) change(ctx context.Context, f func(q *db.Queries, known []fleet.RegionMember) error) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.RegionKey(fleet.RegionName(s.Region))}); err != nil {
			return err
		}
		rows, err := q.ListMembers(ctx)
		if err != nil {
			return err
		}
		return f(q, membersOf(rows))
	})
}

// named finds a member; nil if the name was never known.
func named(known []fleet.RegionMember, name fleet.RegionName) *fleet.RegionMember {
	for i, m := range known {
		if m.Name == name {
			return &known[i]
		}
	}
	return nil
}

func save(ctx context.Context, q *db.Queries, m fleet.RegionMember) error {
	return q.SaveMember(ctx, db.SaveMemberParams{
		Name: string(m.Name), Self: m.Self, PublicKey: m.Key, Number: m.Number, AdmittedBy: string(m.AdmittedBy), Admission: m.Admission,
		Address: m.Address, AddressNumber: m.AddressNumber, AddressSignature: m.AddressSignature,
	})
}

// Announce stores this region's own record. sign completes it from the stored one, or from an empty one.
func (s *Store) Announce(ctx context.Context, sign func(stored fleet.MemberRecord) fleet.MemberRecord) error {
	return s.change(ctx, func(q *db.Queries, known []fleet.RegionMember) error {
		self := fleet.RegionMember{Self: true}
		if at := named(known, fleet.RegionName(s.Region)); at != nil {
			self = *at
		}
		before := self.MemberRecord
		self.MemberRecord = sign(before)
		if self.AddressNumber == before.AddressNumber && self.Number == before.Number {
			return nil
		}
		return save(ctx, q, self)
	})
}

// TakeMembers stores what is new and authentic of the records that a peer passed on, and returns what was decided.
func (s *Store) TakeMembers(ctx context.Context, records []fleet.MemberRecord) ([]decide.MemberDecision, error) {
	var out []decide.MemberDecision
	err := s.change(ctx, func(q *db.Queries, known []fleet.RegionMember) error {
		out = decide.Members(known, records)
		return take(ctx, q, out)
	})
	return out, err
}

func take(ctx context.Context, q *db.Queries, all []decide.MemberDecision) error {
	for _, d := range all {
		if d.Do != decide.MemberTake {
			continue
		}
		if err := save(ctx, q, fleet.RegionMember{MemberRecord: d.Record}); err != nil {
			return err
		}
	}
	return nil
}

// SawPeer records the outcome of a call to a peer; problem is "" for success.
func (s *Store) SawPeer(ctx context.Context, name fleet.RegionName, problem string) error {
	return s.Q.SawMember(ctx, db.SawMemberParams{Name: string(name), Problem: problem})
}

// TellsOf keeps what a peer tells of itself.
func (s *Store) TellsOf(ctx context.Context, name fleet.RegionName, about fleet.RegionAbout) error {
	text, err := json.Marshal(about)
	if err == nil {
		err = s.Q.TellsOfMember(ctx, db.TellsOfMemberParams{Name: string(name), About: text})
	}
	return err
}

// SawEra takes the era of a peer's database. It is a conflict when that goes back: to a lower era, or to another one of the same
// number.
func (s *Store) SawEra(ctx context.Context, name fleet.RegionName, is fleet.RegionEra) error {
	known, err := s.Q.EraOfMember(ctx, string(name))
	switch {
	case postgres.NoRows(err):
		return nil // it is asked for the first time
	case err != nil:
		return err
	case known.Era == is.Number && known.EraID == is.ID:
		return nil
	case known.Era >= is.Number:
		return fleet.Errorf(fleet.Conflict, "the database of region %s went back: its era is %d (%s), and was %d (%s)", name, is.Number, is.ID, known.Era, known.EraID).
			WithHint("run holdfast admin raise-era there until its era is above that one")
	}
	_, err = s.Q.RaiseEraOfMember(ctx, db.RaiseEraOfMemberParams{Name: string(name), Era: is.Number, EraID: is.ID})
	return err
}

// Era is that of this region's database.
func (s *Store) Era(ctx context.Context) (fleet.RegionEra, error) {
	r, err := s.Q.GetRegion(ctx)
	return fleet.RegionEra{Number: r.Era, ID: r.EraID}, err
}

// DisablePeer ends all traffic with a peer and deletes nothing; a disabled one stays so.
func (s *Store) DisablePeer(ctx context.Context, name fleet.RegionName) error {
	return s.turn(ctx, name, s.Q.DisableMember)
}

// EnablePeer allows traffic with a peer again.
func (s *Store) EnablePeer(ctx context.Context, name fleet.RegionName) error {
	return s.turn(ctx, name, s.Q.EnableMember)
}

func (s *Store) turn(ctx context.Context, name fleet.RegionName, how func(context.Context, string) (int64, error)) error {
	n, err := how(ctx, string(name))
	if err == nil && n == 0 {
		return s.noPeer(name)
	}
	return err
}

// RemovePeer forgets a peer of which no copies are kept. Its name joins again only by a new invitation.
func (s *Store) RemovePeer(ctx context.Context, name fleet.RegionName) error {
	return s.change(ctx, func(q *db.Queries, _ []fleet.RegionMember) error {
		copies, err := s.copies(ctx, q, string(name))
		if err != nil {
			return err
		}
		if copies > 0 {
			return fleet.Errorf(fleet.Conflict, "%d copies of objects of region %s are kept", copies, name).At("name").
				WithHint("take this region out of the policies that share them, in the region that controls each; or drop them, once it is disabled: holdfast region drop-copies " + string(name))
		}
		if err := q.DropWaitingOf(ctx, string(name)); err != nil {
			return err
		}
		n, err := q.RemoveMember(ctx, string(name))
		if err == nil && n == 0 {
			return s.noPeer(name)
		}
		return err
	})
}

func (s *Store) noPeer(name fleet.RegionName) error {
	if string(name) == s.Region {
		return fleet.Errorf(fleet.Invalid, "%s is this region itself", name).At("name").WithHint("name a peer: holdfast get regions")
	}
	return fleet.Errorf(fleet.NotFound, "peer region %s not found", name).At("name").WithHint("holdfast get regions")
}
