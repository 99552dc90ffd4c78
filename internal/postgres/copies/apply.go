package copies

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ApplyCopies writes a set and moves the position, in one transaction and for the newest claim only: a server that was paused
// and wakes writes nothing.
func (s *Store) ApplyCopies(ctx context.Context, in fleet.CopySet) (fleet.CopiesApplied, error) {
	var done fleet.CopiesApplied
	err := s.Tx(ctx, "apply what region "+string(in.Claim.Peer)+" sent", func(q *db.Queries) error {
		done = fleet.CopiesApplied{}
		held, err := q.HoldStream(ctx, db.HoldStreamParams{Peer: string(in.Claim.Peer), Claim: in.Claim.Number})
		if postgres.NoRows(err) {
			return lostClaim(in.Claim)
		}
		if err != nil {
			return postgres.Failed("read the stream", err)
		}
		a := &applying{s: s, q: q, self: fleet.RegionName(s.Region), peer: in.Claim.Peer, waits: held.Waits}
		if err = a.run(ctx, in.Changes); err != nil {
			return err
		}
		done = a.done
		if in.Reset { // what was deleted without an event that the peer still has
			if err := s.wantSync(ctx, q, in.Claim.Peer, false); err != nil {
				return err
			}
		}
		p := db.MoveStreamParams{
			Peer: held.Peer, Position: held.Position, Began: held.Began, Applied: int64(done.Written + done.Ended), IsCurrent: in.Current,
			LagMs: in.Lag.Milliseconds(),
		}
		if in.Place != nil {
			p.Position, p.Began = in.Place.Position, in.Place.Began
		}
		return postgres.Failed("move the stream", q.MoveStream(ctx, p))
	})
	return done, err
}

// applying is one set under way.
type applying struct {
	s    *Store
	q    *db.Queries
	self fleet.RegionName
	peer fleet.RegionName
	// waits: earlier changes wait for a policy.
	waits bool
	// compared bounds what a comparison removes; nil for changes that a peer sends by itself.
	compared *decide.Removals

	copies map[fleet.CopyKey]fleet.Object
	held   map[fleet.CopyKey]decide.HeldCopy

	group, all outcome
	doubtful   []fleet.CopyAsked
	removed    int64 // copies that were here
	lost       []lost
	done       fleet.CopiesApplied
}

func (a *applying) run(ctx context.Context, changes []fleet.CopyChange) error {
	earlier, err := a.waiting(ctx)
	if err != nil {
		return err
	}
	newest, malformed := newestOf(slices.Concat(earlier, changes))
	a.all.refused = malformed
	if len(newest) > 0 {
		if err := a.lockShared(ctx, newest); err != nil {
			return err
		}
		if err := a.lockHolders(ctx, newest); err != nil {
			return err
		}
	}
	for _, group := range byLevel(newest) {
		if err := a.take(ctx, group); err != nil {
			return err
		}
	}
	a.done.Written, a.done.Ended, a.done.Kept = len(a.all.written), len(a.all.ended), len(a.all.kept)
	a.done.Refused, a.done.Rivals = len(a.all.refused), a.all.rivals
	settled := a.taken()
	if len(earlier) > 0 {
		settled = append(settled, a.all.kept...)
	}
	for _, step := range []func() error{
		func() error { return a.list(ctx) },
		func() error { return a.move(ctx) },
		func() error { return a.turnPolicies(ctx, slices.Concat(a.all.written, a.all.ended)) },
		func() error { return a.follow(ctx, a.all.written) },
		func() error { return a.release(ctx, settled) },
		func() error { return a.stopWaiting(ctx) },
		func() error { return a.refuse(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// taken are the changes that were made.
func (a *applying) taken() []fleet.CopyChange {
	return slices.Concat(a.all.written, a.all.ended, a.all.moved)
}

// lockHolders takes the locks of what governs objects of this region, in the order in which their writers take them.
func (a *applying) lockHolders(ctx context.Context, changes []fleet.CopyChange) error {
	for _, level := range []fleet.ObjectKind{fleet.KindService, fleet.KindProject, fleet.KindOrganization} {
		ids := map[int64]bool{}
		for _, c := range changes {
			if c.Key.Kind == level {
				ids[postgres.LockID(c.Key.ObjectKey)] = false
			}
		}
		if len(ids) == 0 {
			continue
		}
		if err := postgres.LockKeys(ctx, a.q, ids); err != nil {
			return err
		}
	}
	return nil
}

// turnPolicies has the policies of changed holders applied to what this region owns under them (M8, M11).
func (a *applying) turnPolicies(ctx context.Context, changes []fleet.CopyChange) error {
	var subjects []string
	for _, c := range changes {
		if !c.Key.Kind.Declared().Holder {
			continue
		}
		p := db.WantPolicyTurnParams{Kind: string(c.Key.Kind), Name: c.Key.Name, Restart: true}
		if c.Object != nil {
			p.Generation = c.Object.Generation
		}
		if err := a.q.WantPolicyTurn(ctx, p); err != nil {
			return postgres.Failed("have the policy applied", err)
		}
		subjects = append(subjects, fleet.PolicySubject(c.Key.ObjectKey))
	}
	return postgres.PutOutbox(ctx, a.q, subjects...)
}

// newestOf gives one change of each object, the newest, and apart what Postgres could not even look up.
func newestOf(all []fleet.CopyChange) (out []fleet.CopyChange, malformed []refusal) {
	at := map[fleet.CopyKey]int{}
	for _, c := range all {
		if c.Validate() != nil {
			malformed = append(malformed, refusal{c, "malformed"})
			continue
		}
		i, is := at[c.Key]
		switch {
		case !is:
			at[c.Key] = len(out)
			out = append(out, c)
		case c.Version.Newer(out[i].Version):
			out[i] = c
		}
	}
	return out, malformed
}

// columns are the keys of a set, as queries take them.
type columns struct{ regions, kinds, scopes, names []string }

func columnsOf(keys []fleet.CopyKey) (c columns) {
	for _, k := range keys {
		c.regions, c.kinds = append(c.regions, string(k.Region)), append(c.kinds, string(k.Kind))
		c.scopes, c.names = append(c.scopes, k.Scope), append(c.names, k.Name)
	}
	return c
}

func keysOf(changes []fleet.CopyChange) []fleet.CopyKey {
	out := make([]fleet.CopyKey, len(changes))
	for i, c := range changes {
		out[i] = c.Key
	}
	return out
}

func (a *applying) read(ctx context.Context, changes []fleet.CopyChange) error {
	c := columnsOf(keysOf(changes))
	rows, err := a.q.CopiesNow(ctx, db.CopiesNowParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	if err != nil {
		return postgres.Failed("read copies", err)
	}
	markers, err := a.q.MarkersNow(ctx, db.MarkersNowParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	if err != nil {
		return postgres.Failed("read markers", err)
	}
	a.copies = make(map[fleet.CopyKey]fleet.Object, len(rows))
	a.held = make(map[fleet.CopyKey]decide.HeldCopy, len(rows)+len(markers))
	for _, m := range markers {
		key := fleet.CopyKey{Region: fleet.RegionName(m.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(m.Kind), Scope: m.Scope, Name: m.Name}}
		a.held[key] = decide.HeldCopy{Known: true, Owner: fleet.RegionName(m.Owner), Version: fleet.CopyVersion{OwnerEpoch: m.OwnerEpoch, Number: m.Number}}
	}
	for _, r := range rows {
		o := copyOf(r)
		key := keyOf(o)
		a.copies[key] = o
		a.held[key] = decide.HeldCopy{Known: true, Owner: fleet.RegionName(r.Owner), Version: o.Version}
	}
	return nil
}

func keyOf(o fleet.Object) fleet.CopyKey {
	return fleet.CopyKey{Region: o.Region, ObjectKey: o.ObjectKey}
}

// copyOf is a row as an object.
func copyOf(r db.Copy) fleet.Object { return postgres.CopyOf(r) }

func (a *applying) write(ctx context.Context, changes []fleet.CopyChange) error {
	if len(changes) == 0 {
		return nil
	}
	events, err := a.append(ctx, changes, func(c fleet.CopyChange) (kind string, before, after *fleet.Object) {
		if was, is := a.copies[c.Key]; is {
			return "updated", &was, c.Object
		}
		return "created", nil, c.Object
	})
	if err != nil {
		return err
	}
	rows := make([]row, len(changes))
	for i, c := range changes {
		o := *c.Object
		o.Region, o.Version, o.ResourceVersion = c.Key.Region, c.Version, events[c.Key]
		rows[i] = rowOf(a.peer, o)
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return postgres.Failed("write copies", err)
	}
	if err := a.q.PutCopies(ctx, body); err != nil {
		return postgres.Failed("write copies", err)
	}
	c := columnsOf(keysOf(changes))
	err = a.q.DropMarkers(ctx, db.DropMarkersParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	return postgres.Failed("drop markers", err)
}

type marker struct {
	Region     fleet.RegionName `json:"region"`
	Kind       fleet.ObjectKind `json:"kind"`
	Scope      string           `json:"scope"`
	Name       string           `json:"name"`
	Owner      fleet.RegionName `json:"owner"`
	OwnerEpoch int64            `json:"owner_epoch"`
	Number     int64            `json:"number"`
	Reason     fleet.CopyEnd    `json:"reason"`
}

// markedAs are the reasons of markers that are not those of their changes; one with an object is of what this region is to
// have no more.
var markedAs = map[fleet.CopyEnd]fleet.CopyEnd{
	"": fleet.CopyRemoved, fleet.CopyUndone: fleet.CopyDeleted, fleet.CopyUnknown: fleet.CopyDeleted,
}

// end takes copies away and leaves markers, also where there was no copy.
func (a *applying) end(ctx context.Context, changes []fleet.CopyChange) error {
	if len(changes) == 0 {
		return nil
	}
	var gone []fleet.CopyChange
	markers := make([]marker, len(changes))
	for i, c := range changes {
		if _, is := a.copies[c.Key]; is {
			gone = append(gone, c)
		}
		markers[i] = marker{
			Region: c.Key.Region, Kind: c.Key.Kind, Scope: c.Key.Scope, Name: c.Key.Name, Owner: a.peer,
			OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, Reason: c.End,
		}
		if reason, other := markedAs[c.End]; other {
			markers[i].Reason = reason
		}
	}
	if _, err := a.append(ctx, gone, func(c fleet.CopyChange) (string, *fleet.Object, *fleet.Object) {
		was := a.copies[c.Key]
		was.Version = c.Version // by which it went
		return "deleted", &was, nil
	}); err != nil {
		return err
	}
	c := columnsOf(keysOf(gone))
	if err := a.q.DropCopies(ctx, db.DropCopiesParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names}); err != nil {
		return postgres.Failed("drop copies", err)
	}
	body, err := json.Marshal(markers)
	if err != nil {
		return postgres.Failed("write markers", err)
	}
	return postgres.Failed("write markers", a.q.PutMarkers(ctx, body))
}

// event is an event of a copy, as the query takes it.
type event struct {
	Type       string            `json:"type"`
	Kind       fleet.ObjectKind  `json:"kind"`
	Project    fleet.ProjectName `json:"project"`
	Scope      string            `json:"scope"`
	Name       string            `json:"name"`
	UID        string            `json:"uid"`
	Generation int64             `json:"generation"`
	Before     json.RawMessage   `json:"before,omitempty"`
	After      json.RawMessage   `json:"after,omitempty"`
	Region     fleet.RegionName  `json:"region"`
}

// append writes local events, which peers do not receive, and gives their numbers.
func (a *applying) append(
	ctx context.Context, changes []fleet.CopyChange, of func(fleet.CopyChange) (kind string, before, after *fleet.Object),
) (map[fleet.CopyKey]int64, error) {
	out := make(map[fleet.CopyKey]int64, len(changes))
	if len(changes) == 0 {
		return out, nil
	}
	rows := make([]event, len(changes))
	for i, c := range changes {
		kind, before, after := of(c)
		for _, o := range []*fleet.Object{before, after} {
			if o != nil {
				o.Region = c.Key.Region
			}
		}
		o := after
		if o == nil {
			o = before
		}
		rows[i] = event{
			Type: kind, Kind: o.Kind, Project: o.Project, Scope: o.Scope, Name: o.Name, UID: o.UID, Generation: o.Generation,
			Before: postgres.Declared(before), After: postgres.Declared(after), Region: c.Key.Region,
		}
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return nil, postgres.Failed("append events", err)
	}
	numbers, err := a.q.AppendCopyEvents(ctx, db.AppendCopyEventsParams{Actor: "region:" + string(a.peer), Rows: body})
	if err != nil {
		return nil, postgres.Failed("append events", err)
	}
	for _, n := range numbers {
		out[fleet.CopyKey{Region: fleet.RegionName(n.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(n.Kind), Scope: n.Scope, Name: n.Name}}] = n.Seq
	}
	return out, nil
}
