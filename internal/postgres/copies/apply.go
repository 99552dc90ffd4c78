package copies

import (
	"cmp"
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
	err := s.Tx(ctx, func(q *db.Queries) error {
		done = fleet.CopiesApplied{}
		if err := lockPeer(ctx, q, in.Claim.Peer); err != nil {
			return err
		}
		a, ahead := s.applying(q, in.Claim.Peer), in.Changes
		if in.Arrived {
			a.arrived = keysOf(in.Changes)
		}
		if in.UndoneFrom > 0 { // what is undone goes first
			ahead = nil
		}
		var held db.HoldStreamRow
		err := a.begin(ctx, ahead, func(q *db.Queries) (err error) {
			held, err = holdStream(ctx, q, in.Claim)
			return err
		})
		if err != nil {
			return err
		}
		a.waits = held.Waits
		if err := listUndone(ctx, q, in.Claim.Peer, cmp.Or(held.Position, held.Began), in.UndoneFrom); err != nil {
			return err
		}
		if err := a.run(ctx, in.Changes); err != nil {
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
		return q.MoveStream(ctx, p)
	})
	return done, err
}

// holdStream reads a stream, which stays with its claim until the transaction ends.
func holdStream(ctx context.Context, q *db.Queries, claim fleet.StreamClaim) (db.HoldStreamRow, error) {
	held, err := q.HoldStream(ctx, db.HoldStreamParams{Peer: string(claim.Peer), Claim: claim.Number})
	if postgres.NoRows(err) {
		return held, lostClaim(claim)
	}
	return held, err
}

// lockPeer has the stream of a peer and the comparison with it apply one after the other: each decides by what is here.
func lockPeer(ctx context.Context, q *db.Queries, peer fleet.RegionName) error {
	return postgres.LockKeys(ctx, q, map[int64]bool{postgres.LockID(fleet.RegionKey(peer)): false})
}

// applying is one set under way.
type applying struct {
	s    *Store
	q    *db.Queries
	self fleet.RegionName
	peer fleet.RegionName
	// waits: earlier changes wait for a policy.
	waits bool
	// arrived are those that count only if they still wait for their parts: a restore of the peer may have undone them.
	arrived []fleet.CopyKey
	// compared bounds what a comparison removes; nil for changes that a peer sends by itself.
	compared *decide.Removals

	copies map[fleet.CopyKey]fleet.Object
	held   map[fleet.CopyKey]decide.HeldCopy
	// marked, aside, pending and listed are what has a marker, was set aside, waits for its parts, and is listed as lost.
	marked, aside, pending, listed map[fleet.CopyKey]bool

	group, all outcome
	doubtful   []fleet.CopyAsked
	removed    int64 // copies that were here
	unshown    int64 // those of them that count towards the cap
	lost       []lost
	done       fleet.CopiesApplied
}

func (s *Store) applying(q *db.Queries, peer fleet.RegionName) *applying {
	return &applying{
		s: s, q: q, self: fleet.RegionName(s.Region), peer: peer, copies: map[fleet.CopyKey]fleet.Object{}, held: map[fleet.CopyKey]decide.HeldCopy{},
		marked: map[fleet.CopyKey]bool{}, aside: map[fleet.CopyKey]bool{}, pending: map[fleet.CopyKey]bool{}, listed: map[fleet.CopyKey]bool{},
	}
}

// begin locks what changes are of, and reads what is here of it, while hold makes sure that they may be applied.
func (a *applying) begin(ctx context.Context, changes []fleet.CopyChange, hold func(*db.Queries) error) error {
	newest, _ := newestOf(changes)
	if err := a.lock(ctx, newest); err != nil {
		return err
	}
	return postgres.Together(ctx, a.q, hold, func(q *db.Queries) error { return a.read(ctx, q, newest) })
}

func (a *applying) lock(ctx context.Context, changes []fleet.CopyChange) error {
	if err := a.lockShared(ctx, changes); err != nil {
		return err
	}
	return a.lockHolders(ctx, changes)
}

// run applies changes, and earlier ones that wait.
func (a *applying) run(ctx context.Context, changes []fleet.CopyChange) error {
	earlier, err := a.waiting(ctx)
	if err != nil {
		return err
	}
	newest, refused := newestOf(slices.Concat(earlier, changes))
	a.all.refused = refused
	if more := slices.DeleteFunc(slices.Clone(newest), a.wasRead); len(more) > 0 {
		if err := a.lock(ctx, newest); err != nil {
			return err
		}
		if err := a.read(ctx, a.q, more); err != nil {
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
		func() error { return putLost(ctx, a.q, a.peer, a.lost) },
		func() error { return a.findUndone(ctx) },
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
			return err
		}
		subjects = append(subjects, fleet.PolicySubject(c.Key.ObjectKey))
	}
	return postgres.PutOutbox(ctx, a.q, subjects...)
}

// newestOf gives one change of each object, the newest, and apart what Postgres could not even look up.
func newestOf(all []fleet.CopyChange) (out []fleet.CopyChange, refused []refusal) {
	at := map[fleet.CopyKey]int{}
	for _, c := range all {
		if why := c.Refused(); why != "" {
			refused = append(refused, refusal{c, why})
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
	return out, refused
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

// keysIn are those of some changes that are in a set.
func keysIn(set map[fleet.CopyKey]bool, changes []fleet.CopyChange) (out []fleet.CopyKey) {
	for _, c := range changes {
		if set[c.Key] {
			out = append(out, c.Key)
		}
	}
	return out
}

func keyOf(o fleet.Object) fleet.CopyKey {
	return fleet.CopyKey{Region: o.Region, ObjectKey: o.ObjectKey}
}

// copyOf is a row as an object.
func copyOf(r db.Copy) fleet.Object { return postgres.CopyOf(r) }

// written is a copy and its event, as the query takes them.
type written struct {
	row
	Type   string          `json:"type"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

func (a *applying) write(ctx context.Context, changes []fleet.CopyChange) error {
	if len(changes) == 0 {
		return nil
	}
	rows := make([]written, len(changes))
	for i, c := range changes {
		o := *c.Object
		o.Region, o.Version = c.Key.Region, c.Version
		rows[i] = written{row: rowOf(a.peer, o), Type: "created", After: postgres.Declared(&o)}
		if was, is := a.copies[c.Key]; is {
			rows[i].Type, rows[i].Before = "updated", postgres.Declared(&was)
		}
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if err := a.q.WriteCopies(ctx, db.WriteCopiesParams{Actor: a.actor(), Rows: body}); err != nil {
		return err
	}
	return a.dropMarkers(ctx, changes)
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
	if len(gone) > 0 {
		if err := a.ended(ctx, gone); err != nil {
			return err
		}
		c := columnsOf(keysOf(gone))
		if err := a.q.DropCopies(ctx, db.DropCopiesParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names}); err != nil {
			return err
		}
	}
	body, err := json.Marshal(markers)
	if err != nil {
		return err
	}
	return a.q.PutMarkers(ctx, body)
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
	Region     fleet.RegionName  `json:"region"`
}

// went is a state that ends, with the version and the owner by which it does: of what others had from this region, that one tells them.
func (a *applying) went(c fleet.CopyChange) (fleet.Object, error) {
	o := a.copies[c.Key]
	o.Version = c.Version
	syncing := o.SyncingNow()
	syncing.OwningRegion, syncing.TookOver = string(a.peer), c.TookOver
	var err error
	o.Syncing, err = json.Marshal(syncing)
	return o, err
}

// ended writes the local events of copies that go, which peers do not receive.
func (a *applying) ended(ctx context.Context, gone []fleet.CopyChange) error {
	rows := make([]event, len(gone))
	for i, c := range gone {
		o, err := a.went(c)
		if err != nil {
			return err
		}
		if err := a.passOn(ctx, c.Key, o); err != nil {
			return err
		}
		rows[i] = event{
			Type: "deleted", Kind: o.Kind, Project: o.Project, Scope: o.Scope, Name: o.Name, UID: o.UID, Generation: o.Generation,
			Before: postgres.Declared(&o), Region: c.Key.Region,
		}
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	_, err = a.q.AppendCopyEvents(ctx, db.AppendCopyEventsParams{Actor: a.actor(), Rows: body})
	return err
}
