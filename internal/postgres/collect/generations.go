package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// generations removes those of copied templates that nothing pins, kept as long as bodies. They are locked first, and looked
// for in a separate statement, as bodies are.
func (c *collection) generations(ctx context.Context) error {
	page, err := c.q.LockOldGenerations(ctx, db.LockOldGenerationsParams{OlderSeconds: c.keep.Bodies.Seconds(), MaxRows: collectRows})
	if err != nil || len(page) == 0 {
		return err
	}
	c.more = len(page) == collectRows
	all := db.GenerationsPinnedParams{}
	for _, g := range page {
		all.Names, all.Generations = append(all.Names, g.Name), append(all.Generations, g.Generation)
	}
	rows, err := c.q.GenerationsPinned(ctx, all)
	if err != nil {
		return err
	}
	used, unused := db.GenerationsUsedParams{}, db.DropGenerationsParams{}
	pinned := map[db.LockOldGenerationsRow]bool{}
	for _, r := range rows {
		pinned[db.LockOldGenerationsRow(r)] = true
		used.Names, used.Generations = append(used.Names, r.Name), append(used.Generations, r.Generation)
	}
	for _, g := range page {
		if !pinned[g] {
			unused.Names, unused.Generations = append(unused.Names, g.Name), append(unused.Generations, g.Generation)
		}
	}
	if len(used.Names) > 0 { // looked at again when as much time has passed
		if err := c.q.GenerationsUsed(ctx, used); err != nil {
			return err
		}
	}
	c.removed = int64(len(unused.Names))
	if c.removed == 0 {
		return nil
	}
	return c.q.DropGenerations(ctx, unused)
}
