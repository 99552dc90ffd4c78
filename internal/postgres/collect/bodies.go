package collect

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// bodies removes those that nothing refers to. They are locked first, and looked at in a
// separate statement: it sees each reference that was committed before the lock, and
// none can be added while it is held.
func (c *collection) bodies(ctx context.Context) error {
	page, err := c.q.LockUnusedBodies(ctx, db.LockUnusedBodiesParams{OlderSeconds: c.keep.Bodies.Seconds(), MaxRows: collectRows})
	if err != nil || len(page) == 0 {
		return err
	}
	ids := make([]int64, len(page))
	for i, b := range page {
		ids[i] = b.ID
	}
	used, err := c.referred(ctx, ids)
	if err != nil {
		return err
	}
	c.more = len(page) == collectRows
	if len(used) > 0 { // looked at again when as much time has passed
		if err := c.q.BodiesUsed(ctx, used); err != nil {
			return err
		}
	}
	return c.drop(ctx, unusedBodies(page, used))
}

// referred are those that something refers to.
func (c *collection) referred(ctx context.Context, ids []int64) ([]int64, error) {
	used, err := c.q.BodiesReferred(ctx, ids)
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(used, id) })
	if len(left) == 0 {
		return used, nil
	}
	declared, err := c.q.BodiesDeclared(ctx, left)
	return append(used, declared...), err
}

func unusedBodies(page []db.LockUnusedBodiesRow, used []int64) []db.LockUnusedBodiesRow {
	in := map[int64]bool{}
	for _, id := range used {
		in[id] = true
	}
	var out []db.LockUnusedBodiesRow
	for _, b := range page {
		if !in[b.ID] {
			out = append(out, b)
		}
	}
	return out
}

// drop removes as many as one page may hold of bytes; the rest has its turn in the next.
func (c *collection) drop(ctx context.Context, bodies []db.LockUnusedBodiesRow) error {
	var whole, large []int64
	var names [][]byte
	var bytes int64
	for _, b := range bodies {
		if b.Size > collectBytes {
			large, names = append(large, b.ID), append(names, b.Hash)
			continue
		}
		if bytes += b.Size; bytes > collectBytes {
			c.more = true
			break
		}
		whole = append(whole, b.ID)
	}
	c.removed = int64(len(whole) + len(large))
	if len(large) > 0 {
		if err := c.q.DropBodyProjects(ctx, names); err != nil {
			return err
		}
		if err := c.q.UnnameBodies(ctx, large); err != nil {
			return err
		}
	}
	if len(whole) == 0 {
		return nil
	}
	return c.q.DropBodies(ctx, whole)
}

// chunks removes what bodies without a name hold, and those that hold nothing any more.
func (c *collection) chunks(ctx context.Context) error {
	ids, err := c.q.LockNamelessBodies(ctx, collectRows)
	if err != nil || len(ids) == 0 {
		return err
	}
	if c.removed, err = c.q.DropChunks(ctx, db.DropChunksParams{Ids: ids, MaxRows: collectChunks}); err != nil {
		return err
	}
	c.more = c.removed == collectChunks || len(ids) == collectRows
	return c.q.DropEmptyBodies(ctx, ids)
}
