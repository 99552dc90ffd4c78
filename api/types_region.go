package api

import "time"

// RegionStatus is what this region knows of a region: of itself, or of a peer.
type RegionStatus struct {
	Self     bool   `json:"self"`
	Address  string `json:"address,omitempty" doc:"where its peers reach it"`
	Disabled bool   `json:"disabled"`
	// Reachable: the last call to the peer succeeded, at most 30 s ago.
	Reachable  bool       `json:"reachable"`
	LastSeen   *time.Time `json:"lastSeen,omitempty"`
	AdmittedBy string     `json:"admittedBy,omitempty"`
	Problem    string     `json:"problem,omitempty" doc:"why the last call to the peer failed"`
	// Upgrading: servers of several builds run. Builds counts the servers of each.
	Upgrading bool           `json:"upgrading"`
	Builds    map[string]int `json:"builds,omitempty"`
	// Recovering: this region was restored, and compares with these peers before it accepts writes under a policy.
	Recovering []string `json:"recovering,omitempty"`
	// Followed is what this region has of what the peer owns.
	Followed *RegionFollowed `json:"followed,omitempty"`
}

// CopyStatus is the status of a copy of what another region owns.
type CopyStatus struct {
	Synced *Condition `json:"synced,omitempty" doc:"whether the copy is what its owner declares"`
}

// RegionFollowed is how far a region follows a peer.
type RegionFollowed struct {
	// LagSeconds is how far the copies are behind: the time since this region had all that the peer had committed, in seconds; at rest up to 5.
	LagSeconds  *float64 `json:"lagSeconds,omitempty" doc:"time since this region had all that the peer had committed, in seconds; absent before the first time"`
	Copies      int64    `json:"copies"`
	Quarantined int64    `json:"quarantined" doc:"what the peer sent and this region did not take"`
	Waiting     int64    `json:"waiting,omitempty" doc:"copies whose newest state waits for the template generations and bodies that it names"`
	// Kept are generations of templates whose copies were removed. What pins them keeps them; nothing new can pin them.
	Kept []KeptGeneration `json:"kept,omitempty" doc:"template generations in use whose copies were removed, at most 100"`
	// Compared is the last comparison with the peer.
	Compared *RegionCompared `json:"compared,omitempty"`
}

// KeptGeneration is a template generation that is in use, and whose copy was removed.
type KeptGeneration struct {
	Template   string `json:"template" doc:"with its region: eu/base"`
	Generation int64  `json:"generation"`
	UsedBy     int64  `json:"usedBy" doc:"how many instances, fleet changes and templates pin it"`
}

// RegionCompared is a comparison with a peer, and how far it is.
type RegionCompared struct {
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	Done      int64      `json:"done" doc:"ranges of objects that are compared"`
	Ranges    int64      `json:"ranges"`
	Compared  int64      `json:"compared" doc:"objects"`
	Differed  int64      `json:"differed"`
	Written   int64      `json:"written"`
	Removed   int64      `json:"removed"`
	Lost      int64      `json:"lost" doc:"states that their owner does not know: replaced and listed"`
	Waiting   int64      `json:"waiting" doc:"set aside, for an operator to see"`
}

// RegionSync asks for a comparison with a peer.
type RegionSync struct {
	// AcceptRemovals: copies that the owner never knew are removed too, however many.
	AcceptRemovals bool `json:"acceptRemovals,omitempty"`
}

// SetAside is an object of a peer that this region did not take.
type SetAside struct {
	ObjectNamed
	Reason string    `json:"reason" doc:"malformed, not_its_owner, own_object, never_known, above_cap"`
	At     time.Time `json:"at"`
}

// ObjectNamed names an object among those of all regions.
type ObjectNamed struct {
	Region     string `json:"region" doc:"the region that created it"`
	Kind       string `json:"kind"`
	Site       string `json:"site,omitempty"`
	Name       string `json:"name"`
	OwnerEpoch int64  `json:"ownerEpoch,omitempty"`
	Number     int64  `json:"number,omitempty"`
}

// LostWrite is a state of an object that its owner does not know: after a restore, or a claim by force, it went on from an
// earlier place. This region replaced the state by what the owner has.
type LostWrite struct {
	ObjectNamed
	ID     int64     `json:"id"`
	Owner  string    `json:"owner"`
	Reason string    `json:"reason"`
	Object *Object   `json:"object,omitempty" doc:"the state; absent of a deletion"`
	At     time.Time `json:"at"`
}

// RegionInvitation asks for a token that lets one region join once.
type RegionInvitation struct {
	Name    string `json:"name"`
	Seconds int64  `json:"seconds,omitempty" doc:"lifetime, 3600 by default"`
}

// RegionJoin makes this region a member through another one.
type RegionJoin struct {
	Address string `json:"address" doc:"the peer address of the admitting region: https://HOST:PORT"`
	Token   string `json:"token" doc:"what holdfast region invite printed there"`
}

// HandOverRequest asks that a region becomes the control region of a policy holder. With Force, that region claims it
// without its owner.
type HandOverRequest struct {
	To    string `json:"to"`
	Force bool   `json:"force,omitempty"`
}
