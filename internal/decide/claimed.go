package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// Claimed is a change of a region that took an object over, beside what is here of it.
type Claimed struct {
	Self, Peer fleet.RegionName
	Held       HeldCopy
	Was        *fleet.Object // nil: it went
	Change     fleet.CopyChange
	// Same: people declared the same in what is here as in the change.
	Same bool
}

// Loses reports whether the new owner never had what is here: what this region wrote, or what it has from the last owner, which may have
// been restored since (M38).
func (c Claimed) Loses() bool {
	switch c.Held.Owner {
	case c.Self:
		return c.overtaken()
	case c.Peer:
		return false
	}
	return c.missed()
}

// overtaken: the new owner took over a state before the one that this region owned, and has another content; or it was restored, and made
// another object of the name.
func (c Claimed) overtaken() bool {
	if c.Change.TookOver == nil {
		return c.Change.Object != nil && c.Was != nil && c.Was.UID != c.Change.Object.UID
	}
	at, took := c.Held.Version, c.Change.TookOver.Of(c.Self)
	if c.Was != nil {
		at.Number = c.Was.ResourceVersion // a refreshed syncing is nobody's write
	}
	switch {
	case took != nil && !at.Newer(took.Version()):
		return false
	case c.Change.Object == nil:
		return took != nil // a third region may have had it
	}
	return c.Was == nil || !c.Same
}

// missed: the new owner took over a state of the last one before somebody made the write or the deletion that is here, and has another
// content.
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
