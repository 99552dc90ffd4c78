package tenure

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// SiteFile is the name of the file with a node's site, beside node.key and not in node.db.
const SiteFile = "site.json"

// Site is the region's last report about the node's site.
type Site struct {
	Name fleet.SiteName `json:"name"`
	// Project is "" if the region did not send it.
	Project     fleet.ProjectName `json:"project,omitempty"`
	Generation  int64             `json:"generation"`
	Members     []Member          `json:"members"`
	OnIsolation lease.Isolation   `json:"onIsolation"`
	// Resets is the number of the operator's last reset of the votes, ResetEpoch the epoch that it set.
	Resets     int64 `json:"resets,omitempty"`
	ResetEpoch int64 `json:"resetEpoch,omitempty"`
}

// Member is one node of a site.
type Member struct {
	Node        fleet.NodeName    `json:"node"`
	Role        fleet.Role        `json:"role"` // as declared
	PeerAddress string            `json:"peerAddress,omitempty"`
	SigningKey  ed25519.PublicKey `json:"signingKey,omitempty"`
	// NextSigningKey replaces it; both are accepted until the region reports the end of the change.
	NextSigningKey ed25519.PublicKey `json:"nextSigningKey,omitempty"`
	Cordoned       bool              `json:"cordoned,omitempty"`
}

// keys are the keys by which a member may sign, the newest last.
func (m Member) keys() []ed25519.PublicKey {
	var all []ed25519.PublicKey
	for _, key := range []ed25519.PublicKey{m.SigningKey, m.NextSigningKey} {
		if len(key) == ed25519.PublicKeySize {
			all = append(all, key)
		}
	}
	return all
}

// newest is the last of the keys, nil without any.
func (m Member) newest() ed25519.PublicKey {
	all := m.keys()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// SiteOf reads the region's message.
func SiteOf(in *nodev1.Site) (Site, error) {
	s := Site{
		Name: fleet.SiteName(in.GetName()), Project: fleet.ProjectName(in.GetProject()), Generation: in.GetGeneration(),
		OnIsolation: lease.Isolation(in.GetOnIsolation()), Resets: in.GetResets(), ResetEpoch: in.GetResetEpoch(),
	}
	if s.OnIsolation == "" {
		s.OnIsolation = lease.IsolationStop
	}
	for _, m := range in.GetMembers() {
		s.Members = append(s.Members, Member{
			Node: fleet.NodeName(m.GetNode()), Role: fleet.Role(m.GetRole()), PeerAddress: m.GetPeerAddress(), SigningKey: m.GetSigningKey(),
			NextSigningKey: m.GetNextSigningKey(), Cordoned: m.GetCordoned(),
		})
	}
	return s, s.validate()
}

func (s Site) validate() error {
	if err := fleet.ValidateName("/name", string(s.Name)); err != nil {
		return err
	}
	if s.OnIsolation != lease.IsolationStop && s.OnIsolation != lease.IsolationRun {
		return fleet.Errorf(fleet.Invalid, "unknown isolation setting %.20q; use stop or run", s.OnIsolation).At("/onIsolation")
	}
	if s.Resets < 0 || s.ResetEpoch < 0 || s.ResetEpoch > lease.Most {
		return fleet.Errorf(fleet.Invalid, "invalid reset %d to epoch %d: want numbers from 0 to %d", s.Resets, s.ResetEpoch, int64(lease.Most)).At("/resets")
	}
	if len(s.voters()) > 2 {
		return fleet.Errorf(fleet.Invalid, "site %s has %d nodes that may be active; the limit is 2", s.Name, len(s.voters())).At("/members")
	}
	for _, m := range s.Members {
		if err := fleet.ValidateName("/members/node", string(m.Node)); err != nil {
			return err
		}
		for _, key := range []ed25519.PublicKey{m.SigningKey, m.NextSigningKey} {
			if len(key) != 0 && len(key) != ed25519.PublicKeySize {
				return fleet.Errorf(fleet.Invalid, "invalid signing key of node %s", m.Node).At("/members/signingKey")
			}
		}
	}
	return nil
}

// voters are the members that may be active.
func (s Site) voters() []Member {
	var pair []Member
	for _, m := range s.Members {
		if m.Role == fleet.RoleActive || m.Role == fleet.RoleStandby {
			pair = append(pair, m)
		}
	}
	return pair
}

// seat is a node's place among the voters of its site.
type seat struct {
	votes    bool // false for a worker, and for a node that is no longer a member
	first    bool // declared active
	cordoned bool
	peer     Member
	member   bool
}

func (s Site) seat(self fleet.NodeName) seat {
	var at seat
	for _, m := range s.Members {
		at.member = at.member || m.Node == self
	}
	for _, m := range s.voters() {
		if m.Node == self {
			at.votes, at.first, at.cordoned = true, m.Role == fleet.RoleActive, m.Cordoned
		} else {
			at.peer = m
		}
	}
	return at
}

// Paired tells whether a node votes together with another one.
func (s Site) Paired(node fleet.NodeName) bool {
	at := s.seat(node)
	return at.votes && at.peer.Node != ""
}

// others are the other voters.
func (a seat) others() [2]fleet.NodeName {
	if a.peer.Node == "" {
		return [2]fleet.NodeName{}
	}
	return [2]fleet.NodeName{a.peer.Node, lease.Region}
}

// loadSite returns nil without a file. A damaged file counts as missing: the region sends the site again.
func loadSite(path string, name fleet.SiteName) (*Site, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // in the node's own directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the site: %w", err)
	}
	var s Site
	if json.Unmarshal(raw, &s) != nil || s.validate() != nil || s.Name != name {
		return nil, nil
	}
	return &s, nil
}

// save replaces the file atomically.
func (s Site) save(path string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the site: %w", err)
	}
	return durable.WriteFile(path, raw)
}
