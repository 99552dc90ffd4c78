package fleet

import "cmp"

// Version orders everything that a node may hold: first the era of the region's
// database, then the revision number of the subject. Hashes say same, never newer (X1).
type Version struct {
	Era      int64 `json:"era"`
	Revision int64 `json:"revision"`
}

// Compare gives -1, 0 or 1 as v is older than, equal to or newer than w.
func (v Version) Compare(w Version) int {
	if c := cmp.Compare(v.Era, w.Era); c != 0 {
		return c
	}
	return cmp.Compare(v.Revision, w.Revision)
}

// Newer says whether v comes after w.
func (v Version) Newer(w Version) bool { return v.Compare(w) > 0 }

// IsZero says that nothing was ever released or held.
func (v Version) IsZero() bool { return v == Version{} }
