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
	// Followed is what this region has of what the peer owns.
	Followed *RegionFollowed `json:"followed,omitempty"`
}

// RegionFollowed is how far a region follows a peer.
type RegionFollowed struct {
	// LagSeconds is how long ago this region had all that the peer shares with it; at rest it is up to 5 s.
	LagSeconds  *float64 `json:"lagSeconds,omitempty" doc:"how long ago this region had all that the peer shares; absent before the first time"`
	Copies      int64    `json:"copies"`
	Quarantined int64    `json:"quarantined" doc:"what the peer sent and this region did not take"`
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
