package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PutDeployment writes the spec and, unless that is not wanted, releases it: a revision with its
// definition, the operation that waits for it and the outbox row, in one transaction (X2). What was
// released as it is, with the same definition, starts nothing. Over a delete it declares another
// deployment of the same name, which begins when the one before has ended.
func (s *Store) PutDeployment(ctx context.Context, p DeploymentPut) (postgres.Started, error) {
	return s.Change(ctx, p.Write, p.places(), func(q *db.Queries, out *postgres.Started) error {
		if err := placesOf(ctx, q, p); err != nil {
			return err
		}
		if err := postgres.Hold(ctx, q, append(bodiesOf(p.Spec), p.Definition.Hash)...); err != nil {
			return err
		}
		var err error
		if out.Written, err = s.Write(ctx, q, p.Write, p.Spec); err != nil {
			return err
		}
		w, err := workOn(ctx, q, out.After, p.Actor)
		if err != nil {
			return err
		}
		if out.Changes, err = w.changes(ctx, p); err != nil {
			return err
		}
		if err := w.declare(ctx); err != nil || !p.Deploy {
			return err
		}
		if out.Operation, err = w.release(ctx, p); err != nil || out.Operation != nil || !p.Converge {
			return err
		}
		return w.follow(ctx, p, out)
	})
}

func (p DeploymentPut) places() (keys []fleet.ObjectKey) {
	_ = p.Spec.Placement.Each(func(key fleet.ObjectKey, _ string) error {
		keys = append(keys, key)
		return nil
	})
	return keys
}

// placesOf looks again, under their locks, whether there is what the placement names.
func placesOf(ctx context.Context, q *db.Queries, p DeploymentPut) error {
	return p.Spec.Placement.Each(func(key fleet.ObjectKey, field string) error {
		o, err := postgres.Find(ctx, q, key)
		switch {
		case err != nil:
			return err
		case o == nil || o.DeletingSince != nil:
			return fleet.NoPlace(key, field)
		case !p.Project.Uses(o.Project):
			return fleet.OtherPlace(key, field, p.Project)
		}
		return nil
	})
}

// deploymentWork is a change of a deployment's row, in one transaction that holds its locks.
type deploymentWork struct {
	q       *db.Queries
	row     db.Deployment
	object  *fleet.Object // nil when it is not declared any more
	actor   string
	placing *placingTurn // of a visit
	looked  func(fleet.DeploymentName)
	// superseded is the rollout that this change ended.
	superseded *db.Rollout
	// began is the state in which a rollout begins that this change starts, "" for RUNNING.
	began fleet.DeploymentState
}

// workOn locks the row of a declared deployment, which its first declaration makes.
func workOn(ctx context.Context, q *db.Queries, o *fleet.Object, actor string) (*deploymentWork, error) {
	row, err := q.LockDeployment(ctx, o.Name)
	if postgres.NoRows(err) {
		if err := forgetTombstones(ctx, q, o.Name); err != nil {
			return nil, err
		}
		row, err = q.InsertDeployment(ctx, db.InsertDeploymentParams{Name: o.Name, Uid: o.UID, Project: string(o.Project)})
	}
	return &deploymentWork{q: q, row: row, object: o, actor: actor}, err
}

func forgetTombstones(ctx context.Context, q *db.Queries, name string) error {
	return q.ForgetTombstonesOf(ctx, name)
}

func (w *deploymentWork) name() fleet.DeploymentName { return fleet.DeploymentName(w.row.Name) }
func (w *deploymentWork) subject() string            { return fleet.DeploymentSubject(w.name()) }

// deleting reports that what runs belongs to a deleted declaration.
func (w *deploymentWork) deleting() bool {
	return w.object == nil || w.object.UID != w.row.Uid || w.object.DeletingSince != nil
}

// declare has the row follow the object: another declaration waits for the end of the one before,
// and begins at once where that has ended.
func (w *deploymentWork) declare(ctx context.Context) error {
	if w.object.UID == w.row.Uid || w.row.NextUid != nil && *w.row.NextUid == w.object.UID {
		return nil
	}
	w.row.NextUid = &w.object.UID
	if fleet.DeploymentState(w.row.State) == fleet.DeploymentTerminated {
		return w.redeclare(ctx)
	}
	return w.q.DeclareNext(ctx, db.DeclareNextParams{NextUid: w.row.NextUid, Name: w.row.Name})
}

// redeclare begins with the declaration that waited, at what of it was released last.
func (w *deploymentWork) redeclare(ctx context.Context) error {
	to, err := fleet.DeploymentState(w.row.State).Next(fleet.DeploymentRedeclared)
	if err != nil {
		return err
	}
	active, err := w.activeRollout(ctx)
	if err == nil {
		err = w.supersede(ctx, active, "the deployment was declared again")
	}
	if err != nil {
		return err
	}
	if w.row.Project != string(w.object.Project) { // what became of another project's is not shown
		if err := w.q.ForgetDeployment(ctx, db.ForgetDeploymentParams{Name: w.row.Name, Project: string(w.object.Project)}); err != nil {
			return err
		}
		if err := forgetTombstones(ctx, w.q, w.row.Name); err != nil {
			return err
		}
	}
	p := db.RedeclareDeploymentParams{
		Name: w.row.Name, Uid: w.object.UID, Project: string(w.object.Project), ProcessVersion: w.row.ProcessVersion, State: string(to),
	}
	first, err := w.newest(ctx, w.object.UID)
	if err != nil {
		return err
	}
	if first != nil {
		spec, err := specOfRevision(first)
		if err != nil {
			return err
		}
		p.Revision, p.ProcessVersion, p.Target = first.Revision, first.ProcessVersion, postgres.WaveNumber(spec.Replicas.Initial)
	}
	w.row, err = w.q.RedeclareDeployment(ctx, p)
	return err
}

// newest is what was released last of a declaration, nil when nothing was.
func (w *deploymentWork) newest(ctx context.Context, uid string) (*db.DeploymentRevision, error) {
	r, err := w.q.NewestDeploymentRevision(ctx, db.NewestDeploymentRevisionParams{Deployment: w.row.Name, Uid: uid})
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &r, err
}

func specOfRevision(r *db.DeploymentRevision) (fleet.DeploymentSpec, error) {
	var spec fleet.DeploymentSpec
	return spec, postgres.Unreadable("the spec of a revision", json.Unmarshal(r.Spec, &spec))
}

// release numbers a revision, unless the one before says the same.
func (w *deploymentWork) release(ctx context.Context, p DeploymentPut) (*postgres.Operation, error) {
	last, err := w.newest(ctx, w.object.UID)
	if err != nil {
		return nil, err
	}
	if last != nil && postgres.HashText(last.Definition) == p.Definition.Hash && last.Generation == w.object.Generation {
		return nil, nil
	}
	body, err := readSmall(ctx, w.q, p.Definition.Hash)
	if err != nil {
		return nil, err
	}
	how, err := w.way(ctx, p, last, body)
	if err != nil {
		return nil, err
	}
	is, err := w.contentOf(ctx, p, how, body)
	if err != nil {
		return nil, err
	}
	kept, err := json.Marshal(is.terms)
	if err != nil {
		return nil, err
	}
	r := db.InsertDeploymentRevisionParams{
		Deployment: w.row.Name, Revision: w.row.LastRevision + 1, Uid: w.object.UID, Project: string(w.object.Project), Generation: w.object.Generation,
		ProcessVersion: how.version, Spec: is.spec, Terms: kept, Definition: postgres.HashBytes(is.definition), Object: how.object,
		CreatedBy: p.Actor, Reason: p.Reason,
	}
	if err := w.q.InsertDeploymentRevision(ctx, r); err != nil {
		return nil, err
	}
	if err := w.take(ctx, how, r, is.terms); err != nil {
		return nil, err
	}
	if how.idle = is.idle; how.pends {
		if err := w.pend(ctx, p, r, body); err != nil {
			return nil, err
		}
	}
	return w.released(ctx, p, r, how)
}

// follow answers with the operation of what another request has released in the meantime, and converges
// anew when that has ended. A door waits for its own.
func (w *deploymentWork) follow(ctx context.Context, p DeploymentPut, out *postgres.Started) (err error) {
	if p.Door.Run == "" {
		if out.Operation, err = w.releasing(ctx); err != nil || out.Operation != nil {
			return err
		}
	}
	return w.turn(ctx, DeploymentTurn{Write: p.Write, Kind: fleet.OperationConverge, Reason: p.Reason}, out)
}

// releasing is the operation that waits for the newest revision, nil when none does.
func (w *deploymentWork) releasing(ctx context.Context) (*postgres.Operation, error) {
	return w.openOf(ctx, fleet.OperationConverge, w.row.LastRevision)
}

// openOf is the newest open operation of a kind for a revision, nil when there is none.
func (w *deploymentWork) openOf(ctx context.Context, kind fleet.OperationKind, revision int64) (*postgres.Operation, error) {
	rows, err := w.q.SeeDeploymentOperations(ctx, w.subject())
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(rows) {
		if r.Revision == revision && fleet.OperationKind(r.Kind) == kind && !r.CancelRequested {
			row, err := w.q.GetOperation(ctx, r.ID)
			o := postgres.OperationOf(row)
			return &o, err
		}
	}
	return nil, nil
}

// released has the row follow, clamps the target, and opens the operation.
func (w *deploymentWork) released(ctx context.Context, p DeploymentPut, r db.InsertDeploymentRevisionParams, how way) (*postgres.Operation, error) {
	target := w.targetOf(p.Spec.Replicas)
	err := w.q.ReleaseDeployment(ctx, db.ReleaseDeploymentParams{
		Name: w.row.Name, Revision: r.Revision, Uid: r.Uid, ProcessVersion: r.ProcessVersion, Target: postgres.WaveNumber(target), Rolls: how.Beside(),
	})
	if err != nil {
		return nil, err
	}
	line := historyLine{reason: "released", message: releaseMessage(r.Revision, p.Reason), actor: p.Actor}
	if now := w.row; now.Uid == r.Uid {
		now.Target = postgres.WaveNumber(target)
		if !how.Beside() {
			now.Revision, now.ProcessVersion = r.Revision, r.ProcessVersion
		}
		err = w.turned(ctx, now, line)
	} else { // it waits for the end of the one before
		err = w.write(ctx, r.Uid, line)
	}
	if err != nil {
		return nil, err
	}
	o := postgres.NewOperation{Kind: fleet.OperationConverge, Revision: r.Revision, ProcessVersion: r.ProcessVersion, Target: target}
	if how.idle {
		return w.openIdle(ctx, p.Door, o)
	}
	return w.open(ctx, p.Door, o)
}

// targetOf is the target of a release, within its bounds.
func (w *deploymentWork) targetOf(bounds fleet.ReplicaBounds) int {
	target := int(w.row.Target)
	if w.row.Revision == 0 && !w.row.Scaled || w.row.Uid != w.object.UID {
		target = bounds.Initial
	}
	return min(max(target, bounds.Min), bounds.Max)
}

func releaseMessage(revision int64, why string) string {
	if why == "" {
		return fmt.Sprintf("revision %d", revision)
	}
	return fmt.Sprintf("revision %d: %s", revision, why)
}

// open opens an operation, and wakes the entity.
func (w *deploymentWork) open(ctx context.Context, door postgres.Door, o postgres.NewOperation) (*postgres.Operation, error) {
	out, err := w.insert(ctx, door, o)
	if err != nil {
		return nil, err
	}
	return out, postgres.PutOutbox(ctx, w.q, w.subject())
}

func (w *deploymentWork) insert(ctx context.Context, door postgres.Door, o postgres.NewOperation) (*postgres.Operation, error) {
	t, err := w.operationTerms(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Name, o.Subject, o.Project = w.row.Name, w.subject(), w.object.Project
	out, err := postgres.InsertOperation(ctx, w.q, postgres.Request{Actor: w.actor, Door: door, Limit: decide.OperationLimit(t)}, o)
	return &out, err
}

// operationTerms says what an operation has to wait for: also for the end of what earlier revisions made.
func (w *deploymentWork) operationTerms(ctx context.Context, o postgres.NewOperation) (fleet.OperationTerms, error) {
	out := fleet.OperationTerms{Kind: o.Kind}
	if o.Revision == 0 {
		return out, nil
	}
	r, err := w.q.GetDeploymentRevision(ctx, db.GetDeploymentRevisionParams{Deployment: w.row.Name, Revision: o.Revision})
	if err != nil {
		return out, err
	}
	t, err := keptTerms(&r)
	if err != nil {
		return out, err
	}
	out.Startup, out.Check, out.Stop = t.startup(), t.check(), t.stop()
	spec, err := specOfRevision(&r)
	if err != nil {
		return out, err
	}
	switch o.Kind { //nolint:exhaustive // no other one replaces anything
	case fleet.OperationConverge:
		out.MinHealthy, out.Intervals = spec.Strategy.MinHealthy(t.Replica.Shows()), spec.Strategy.Intervals()
	case fleet.OperationRestart:
		out.MinHealthy = spec.Strategy.MinHealthy(t.Replica.Shows())
	}
	p := db.OlderReplicasParams{Deployment: w.row.Name, ProcessVersion: o.ProcessVersion}
	if o.Kind == fleet.OperationConverge { // what an earlier revision placed may have to move
		p.Revision = o.Revision
	}
	older, err := w.q.OlderReplicas(ctx, p)
	out.Replace, out.Stop = int(older.Older), max(out.Stop, time.Duration(older.StopSeconds)*time.Second)
	return out, err
}

// readSmall reads a body of one chunk.
func readSmall(ctx context.Context, q *db.Queries, h fleet.Hash) ([]byte, error) {
	row, err := q.GetBody(ctx, postgres.HashBytes(h))
	if postgres.NoRows(err) {
		return nil, postgres.OrNotFound(nil, "body", string(h), "")
	}
	if err != nil {
		return nil, err
	}
	if row.Size > postgres.ChunkSize {
		return nil, fleet.Errorf(fleet.TooLarge, "the definition has %d bytes; the limit is %d", row.Size, postgres.ChunkSize)
	}
	body, err := q.ReadChunk(ctx, db.ReadChunkParams{BodyID: row.ID, Idx: 0})
	return body, err
}
