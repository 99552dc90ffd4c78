package fleet

import "cmp"

// Version orders everything that a node may hold: first by the era of the region's database, then by the subject's
// revision number. Hashes show equality, never which is newer (X1).
type Version struct {
	Era      int64 `json:"era"`
	Revision int64 `json:"revision"`
}

// Compare returns -1, 0 or 1 if v is older than, equal to or newer than w.
func (v Version) Compare(w Version) int {
	if c := cmp.Compare(v.Era, w.Era); c != 0 {
		return c
	}
	return cmp.Compare(v.Revision, w.Revision)
}

// Newer reports whether v comes after w.
func (v Version) Newer(w Version) bool { return v.Compare(w) > 0 }

// IsZero reports that nothing was ever released or held.
func (v Version) IsZero() bool { return v == Version{} }
