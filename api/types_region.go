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
