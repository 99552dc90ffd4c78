package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

const (
	staged   = "staged"
	current  = "current"
	previous = "previous"
)

// Slot is one revision that a node holds, with its content complete.
type Slot struct {
	fleet.Revision
	Run   []byte // the run section as fetched; empty if the revision has none
	Epoch int64  // at which it was accepted
}

// Deleted tells whether the slot is a tombstone.
func (s *Slot) Deleted() bool { return s != nil && s.Action == fleet.ActionDelete }

// Instance is all that a node holds of one name.
type Instance struct {
	Name      fleet.InstanceName
	HighWater fleet.Revision // the highest ever accepted, also if it failed
	Epoch     int64          // the highest at which one was accepted
	Staged    *Slot
	Current   *Slot
	Previous  *Slot
}

// Known tells whether the node ever accepted anything under the name.
func (i Instance) Known() bool { return !i.HighWater.IsZero() }

// Instance reads one name; an unknown one is the zero Instance with its name.
func (s *Store) Instance(ctx context.Context, name fleet.InstanceName) (Instance, error) {
	in := Instance{Name: name}
	err := s.read(ctx, "read instance", func(ctx context.Context, q *db.Queries) error { // row and slots of one moment
		row, err := q.GetInstance(ctx, string(name))
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		slots, err := q.GetSlots(ctx, string(name))
		if err != nil {
			return err
		}
		in = instanceOf(row)
		for _, slot := range slots {
			in.put(slot)
		}
		return nil
	})
	return in, err
}

// Instances reads every name, in order, including tombstones.
func (s *Store) Instances(ctx context.Context) ([]Instance, error) {
	var all []Instance
	err := s.read(ctx, "list instances", func(ctx context.Context, q *db.Queries) error {
		rows, err := q.ListInstances(ctx)
		if err != nil {
			return err
		}
		slots, err := q.ListSlots(ctx)
		if err != nil {
			return err
		}
		at := make(map[string]int, len(rows))
		for i, row := range rows {
			all = append(all, instanceOf(row))
			at[row.Name] = i
		}
		for _, slot := range slots {
			all[at[slot.Instance]].put(slot)
		}
		return nil
	})
	return all, err
}

// Uneasy reads instances that a crash or an unfinished switch may have left in a wrong state, and those of some
// names, ordered by name.
func (s *Store) Uneasy(ctx context.Context, also []fleet.InstanceName) ([]Instance, error) {
	if also == nil {
		also = []fleet.InstanceName{}
	}
	list, err := json.Marshal(also)
	if err != nil {
		return nil, fmt.Errorf("list names: %w", err)
	}
	var all []Instance
	err = s.read(ctx, "list uneasy instances", func(ctx context.Context, q *db.Queries) error {
		found, err := q.ListUneasy(ctx, string(list))
		if err != nil || len(found) == 0 {
			return err
		}
		names := make([]fleet.InstanceName, len(found))
		for i, name := range found {
			names[i] = fleet.InstanceName(name)
		}
		held, err := instancesOf(ctx, q, names)
		for _, name := range names {
			all = append(all, held.of[name])
		}
		return err
	})
	return all, err
}

func instanceOf(row db.Instance) Instance {
	return Instance{
		Name: fleet.InstanceName(row.Name), Epoch: row.Epoch,
		HighWater: fleet.Revision{
			Version: fleet.Version{Era: row.HighEra, Revision: row.HighRevision},
			Action:  fleet.Action(row.HighAction),
			Content: fleet.Content{Hash: fleet.Hash(row.HighHash)},
			RunHash: fleet.Hash(row.HighRunHash),
			Enabled: row.HighEnabled == 1,
		},
	}
}

func (i *Instance) put(row db.Slot) {
	slot := &Slot{
		Revision: fleet.Revision{
			Version: fleet.Version{Era: row.Era, Revision: row.Revision},
			Action:  fleet.Action(row.Action),
			Content: fleet.Content{Kind: fleet.ContentKind(row.Kind), Hash: fleet.Hash(row.Hash), Size: row.Size},
			RunHash: fleet.Hash(row.RunHash),
			Enabled: row.Enabled == 1,
		},
		Run: row.Run, Epoch: row.Epoch,
	}
	switch row.Slot {
	case staged:
		i.Staged = slot
	case current:
		i.Current = slot
	case previous:
		i.Previous = slot
	}
}
