package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// Claimed is a change by a region that took an object over, with what this region has of the object.
type Claimed struct {
	Self, Peer fleet.RegionName
	Held       HeldCopy
	Was        *fleet.Object // nil: there is none any more
	Change     fleet.CopyChange
	// Same: both were declared with the same content.
	Same bool
}

// Loses reports whether the new owner never had the state that this region has (M38): one that this region wrote, or one from the last
// owner, which may have been restored since.
func (c Claimed) Loses() bool {
	switch c.Held.Owner {
	case c.Self:
		return c.overtaken()
	case c.Peer:
		return false
	}
	return c.missed()
}

// overtaken: the new owner took over an older state than this region wrote, and its content differs; or it was restored, and created
// another object of this name.
func (c Claimed) overtaken() bool {
	if c.Change.TookOver == nil {
		return c.Change.Object != nil && c.Was != nil && c.Was.UID != c.Change.Object.UID
	}
	at, took := c.Held.Version, c.Change.TookOver.Of(c.Self)
	if c.Was != nil {
		at.Number = c.Was.ResourceVersion // people wrote that state; refreshing syncing only raised the number
	}
	switch {
	case took != nil && !at.Newer(took.Version()):
		return false
	case c.Change.Object == nil:
		return took != nil // without it, the owner may have had the state from a third region
	}
	return c.Was == nil || !c.Same
}

// missed: the new owner took over a state of the last owner that is older than the write or deletion here, and its content differs.
func (c Claimed) missed() bool {
	took := c.Change.TookOver.Of(c.Held.Owner)
	switch {
	case took == nil || !c.Held.Version.Newer(took.Version()):
		return false
	case c.Was == nil:
		return c.Held.Deleted && c.Change.Object != nil
	case took.WrittenAt.IsZero() || took.WrittenAt.Equal(c.Was.UpdatedAt):
		return false
	}
	return c.Change.Object == nil || !c.Same
}
