package copies

import (
	"context"
	"encoding/json"
	"time"

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
		a := &applying{s: s, q: q, self: fleet.RegionName(s.Region), in: in, waits: held.Waits}
		if done, err = a.run(ctx); err != nil {
			return err
		}
		p := db.MoveStreamParams{
			Peer: held.Peer, Position: held.Position, Began: held.Began, Applied: int64(done.Written + done.Ended), IsCurrent: in.Current,
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
	s     *Store
	q     *db.Queries
	self  fleet.RegionName
	in    fleet.CopySet
	waits bool // earlier changes wait for a policy

	copies map[fleet.CopyKey]fleet.Object
	held   map[fleet.CopyKey]decide.HeldCopy
}

func (a *applying) run(ctx context.Context) (done fleet.CopiesApplied, err error) {
	waiting, err := a.waiting(ctx)
	if err != nil {
		return done, err
	}
	newest, refused := newestOf(append(waiting, a.in.Changes...))
	if len(newest) == 0 {
		done.Refused = len(refused)
		return done, a.refuse(ctx, refused)
	}
	if err := a.lockShared(ctx, newest); err != nil {
		return done, err
	}
	if err := a.lockHolders(ctx, newest); err != nil {
		return done, err
	}
	var taken, settled []fleet.CopyChange
	for _, group := range byLevel(newest) {
		out, err := a.take(ctx, group)
		if err != nil {
			return done, err
		}
		done.Written, done.Ended, done.Kept = done.Written+len(out.written), done.Ended+len(out.ended), done.Kept+len(out.kept)
		done.Rivals += out.rivals
		taken = append(append(taken, out.written...), out.ended...)
		settled, refused = append(settled, out.kept...), append(refused, out.refused...)
	}
	done.Refused = len(refused)
	if err := a.turnPolicies(ctx, taken); err != nil {
		return done, err
	}
	if err := a.follow(ctx, taken); err != nil {
		return done, err
	}
	if len(waiting) > 0 {
		taken = append(taken, settled...)
	}
	if err := a.release(ctx, taken); err != nil {
		return done, err
	}
	return done, a.refuse(ctx, refused)
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

func copyOf(r db.Copy) fleet.Object { return postgres.CopyOf(r) }

// row is a copy as the queries take it.
type row struct {
	Region        fleet.RegionName  `json:"region"`
	Kind          fleet.ObjectKind  `json:"kind"`
	Scope         string            `json:"scope"`
	Name          string            `json:"name"`
	Owner         fleet.RegionName  `json:"owner"`
	OwnerEpoch    int64             `json:"owner_epoch"`
	Number        int64             `json:"number"`
	UID           string            `json:"uid"`
	Project       fleet.ProjectName `json:"project"`
	Service       string            `json:"service"`
	Labels        map[string]string `json:"labels"`
	Generation    int64             `json:"generation"`
	Spec          json.RawMessage   `json:"spec"`
	Syncing       json.RawMessage   `json:"syncing"`
	CreatedBy     string            `json:"created_by"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
	DeletingSince *time.Time        `json:"deleting_since"`
	Event         int64             `json:"event"`
}

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
		o := c.Object
		rows[i] = row{
			Region: c.Key.Region, Kind: o.Kind, Scope: o.Scope, Name: o.Name, Owner: a.in.Claim.Peer, OwnerEpoch: c.Version.OwnerEpoch,
			Number: c.Version.Number, UID: o.UID, Project: o.Project, Service: o.Service, Labels: o.Labels, Generation: o.Generation, Spec: o.Spec, Syncing: o.Syncing,
			CreatedBy: o.CreatedBy, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, DeletingSince: o.DeletingSince, Event: events[c.Key],
		}
		if rows[i].Labels == nil {
			rows[i].Labels = map[string]string{}
		}
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
			Region: c.Key.Region, Kind: c.Key.Kind, Scope: c.Key.Scope, Name: c.Key.Name, Owner: a.in.Claim.Peer,
			OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, Reason: c.End,
		}
		if c.End == "" { // an object that this region is to have no more
			markers[i].Reason = fleet.CopyRemoved
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
	numbers, err := a.q.AppendCopyEvents(ctx, db.AppendCopyEventsParams{Actor: "region:" + string(a.in.Claim.Peer), Rows: body})
	if err != nil {
		return nil, postgres.Failed("append events", err)
	}
	for _, n := range numbers {
		out[fleet.CopyKey{Region: fleet.RegionName(n.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(n.Kind), Scope: n.Scope, Name: n.Name}}] = n.Seq
	}
	return out, nil
}
