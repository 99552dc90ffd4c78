package sqlite

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// HeldAll gives what the store holds of every name, in order, including tombstones: the input of a comparison,
// at a fraction of the cost of Instances. It does not tell what runs.
func (s *Store) HeldAll(ctx context.Context) ([]fleet.NodeInstance, error) {
	var all []fleet.NodeInstance
	err := s.read(ctx, "list what is held", func(ctx context.Context, q *db.Queries) error {
		marks, err := q.ListHighWaters(ctx)
		if err != nil {
			return err
		}
		currents, err := q.ListCurrents(ctx)
		if err != nil {
			return err
		}
		all = make([]fleet.NodeInstance, len(marks))
		next := 0 // both are ordered by name, and each slot has its mark
		for i, m := range marks {
			high := fleet.Version{Era: m.HighEra, Revision: m.HighRevision}
			all[i] = fleet.NodeInstance{
				Instance: fleet.InstanceName(m.Name), Held: fleet.Held{Known: !high.IsZero(), HighWater: high},
			}
			if next < len(currents) && currents[next].Instance == m.Name {
				all[i].Held.Revision = revisionOf(currents[next])
				next++
			}
		}
		return nil
	})
	return all, err
}

func revisionOf(row db.ListCurrentsRow) fleet.Revision {
	return fleet.Revision{
		Version: fleet.Version{Era: row.Era, Revision: row.Revision}, Action: fleet.Action(row.Action),
		Content: fleet.Content{Kind: fleet.ContentKind(row.Kind), Hash: fleet.Hash(row.Hash), Size: row.Size},
		RunHash: fleet.Hash(row.RunHash), Enabled: row.Enabled == 1,
	}
}
