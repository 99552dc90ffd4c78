package fleet

import (
	"slices"
	"strings"
)

// OperationApplyPolicy is a request to refresh the syncing of everything that a policy holder governs.
const OperationApplyPolicy OperationKind = "apply-policy"

// PolicySubject is the subject under which a policy holder's policy is applied.
func PolicySubject(holder ObjectKey) string {
	return EntityPolicy.Subject(string(holder.Kind), holder.Name)
}

// ParseHolder reads a policy holder as people write it, for example project/p1.
func ParseHolder(field, text string) (ObjectKey, error) {
	kind, name, _ := strings.Cut(text, "/")
	rows := slices.DeleteFunc(DeclaredKinds(), func(k DeclaredKind) bool { return !k.Holder })
	i := slices.IndexFunc(rows, func(k DeclaredKind) bool { return string(k.Kind) == kind })
	if i < 0 {
		forms := make([]string, len(rows))
		for i, k := range rows {
			forms[i] = string(k.Kind) + "/NAME"
		}
		return ObjectKey{}, Errorf(Invalid, "%.80q is not a policy holder; use %s", text, OrList(forms)).At(field)
	}
	return ObjectKey{Kind: rows[i].Kind, Name: name}, ValidateName(field, name)
}

// PolicyVisit names a policy holder, and the run that applies its policy.
type PolicyVisit struct {
	Kind  ObjectKind `json:"kind"`
	Name  string     `json:"name"`
	Run   string     `json:"run"`
	Build string     `json:"build,omitempty"`
	// Objects that the page has at most; 0 is the most that a page ever has.
	Objects int `json:"-"`
}

// Holder is the key of the policy holder.
func (v PolicyVisit) Holder() ObjectKey { return ObjectKey{Kind: v.Kind, Name: v.Name} }

// PolicyTurn is how far a policy is applied: which generation of the holder, and of the objects that it governs the
// last one that was visited, how many were, and the syncing of how many changed.
type PolicyTurn struct {
	Generation int64  `json:"generation"`
	At         string `json:"at,omitempty"`
	Visited    int64  `json:"visited"`
	Refreshed  int64  `json:"refreshed"`
	Done       bool   `json:"done"`
	// Waits: all objects were visited, and the hand-over is under way.
	Waits bool `json:"waits,omitempty"`
	// HandOver is what the holder waits for; nil when it is not being handed over. The turn is not done before.
	HandOver *HandOver `json:"handOver,omitempty"`
	// Feed is the number of the newest event of the region, as the page ended.
	Feed int64 `json:"-"`
}
