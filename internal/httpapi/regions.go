package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
)

// Regions joins this region with others.
type Regions interface {
	// Invite makes a token that lets a region join once.
	Invite(ctx context.Context, region fleet.RegionName, actor string, life time.Duration) (token string, in peers.Invitation, err error)
	// Join makes this region a member through another one; the same call may be repeated.
	Join(ctx context.Context, address, token string) (fleet.RegionName, error)
}

type turnRegionInput struct {
	NameParam
	MutationParams
}

// mountRegions mounts what is read and done with regions. A region declares itself, so there is no PUT.
func (s *server) mountRegions(k fleet.DeclaredKind) {
	path := "/api/v1/" + k.Plural
	serve.Register(s.Server, serve.ForRegionViewers, serve.Endpoint(http.MethodGet, path, "list-regions", "List this region and its peers"), s.listRegions)
	serve.Register(s.Server, serve.ForRegionViewers, serve.Endpoint(http.MethodGet, path+"/{name}", "get-region", "Read this region or a peer"), s.getRegion)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodDelete, path+"/{name}", "delete-region", "Always refused: a region declares itself"),
		func(ctx context.Context, in *changeInput) (*acceptedOutput, error) {
			return s.deleteDeclared(ctx, fleet.RegionKey(fleet.RegionName(in.Name)), ObjectParams{MutationParams: in.MutationParams})
		})
	invite := serve.Endpoint(http.MethodPost, "/api/v1/region-invitations", "invite-region", "Make a token that lets one region join once")
	invite.DefaultStatus = http.StatusCreated
	serve.Register(s.Server, serve.ForAdmins, invite, s.inviteRegion)
	serve.Takes[api.RegionInvitation](s.Server, invite)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodGet, "/api/v1/region-invitations", "list-region-invitations", "List invitations of regions, newest first"), s.listInvitations)
	serve.Register(s.Server, serve.ForAdmins, serve.Endpoint(http.MethodDelete, "/api/v1/region-invitations/{id}", "revoke-region-invitation", "Void an invitation; a region that used it stays a member"), s.revokeInvitation)
	aside := serve.Endpoint(http.MethodGet, path+"/{name}/quarantine", "list-quarantine", "List what a peer sent and this region did not take")
	serve.Register(s.Server, serve.ForRegionViewers, aside, s.listQuarantine)
	lost := serve.Endpoint(http.MethodGet, "/api/v1/lost-writes", "list-lost-writes", "List states of objects that their owners do not know, oldest first")
	serve.Register(s.Server, serve.ForRegionViewers, lost, s.listLostWrites)
	join := serve.Endpoint(http.MethodPost, path+"/join", "join-region", "Make this region a member through another one")
	serve.Register(s.Server, serve.ForAdmins, join, s.joinRegion)
	serve.Takes[api.RegionJoin](s.Server, join)
	for verb, turn := range map[string]struct {
		summary string
		do      func(context.Context, fleet.RegionName) error
	}{
		"disable":       {"End all traffic with a peer, and delete nothing", s.store.DisablePeer},
		"enable":        {"Allow traffic with a peer again", s.store.EnablePeer},
		"remove":        {"Forget a peer of which no copies are kept", s.store.RemovePeer},
		"drop-copies":   {"Drop all copies of what a disabled peer owns", s.store.DropPeer},
		"resume-writes": {"Accept writes under a policy before all peers were compared with after a restore", s.store.ResumeWrites},
	} {
		op := serve.Endpoint(http.MethodPost, path+"/{name}/"+verb, verb+"-region", turn.summary)
		serve.Register(s.Server, serve.ForAdmins, op, func(ctx context.Context, in *turnRegionInput) (*objectOutput, error) {
			return s.turnRegion(ctx, in, verb, turn.do)
		})
	}
}

func (s *server) listRegions(ctx context.Context, in *listInput) (*objectsOutput, error) {
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	all, err := s.regions(ctx)
	if err != nil {
		return nil, err
	}
	var rest []api.Object
	for _, o := range all {
		if o.Name > after {
			rest = append(rest, o)
		}
	}
	return &objectsOutput{Body: page(rest, in.Limit, func(o api.Object) string { return o.Name })}, nil
}

func (s *server) getRegion(ctx context.Context, in *getInput) (*objectOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	o, err := s.regionNamed(ctx, in.Name)
	return &objectOutput{Body: o}, err
}

func (s *server) regionNamed(ctx context.Context, name string) (api.Object, error) {
	all, err := s.regions(ctx)
	for _, o := range all {
		if o.Name == name {
			return o, nil
		}
	}
	if err == nil {
		err = fleet.Errorf(fleet.NotFound, "region %s not found", name).At("name").WithHint("holdfast get regions")
	}
	return api.Object{}, err
}

// addressOf finds where users reach the API of a region, as that region says.
func addressOf(store peerStore) func(context.Context, fleet.RegionName) (string, error) {
	return func(ctx context.Context, name fleet.RegionName) (string, error) {
		members, err := store.Members(ctx)
		for _, m := range members {
			if m.Name == name && !m.Removed {
				return m.About.Spec.APIURL, nil
			}
		}
		return "", err
	}
}

// regions are this region, as it declared itself, and its peers, by name.
func (s *server) regions(ctx context.Context) ([]api.Object, error) {
	members, err := s.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 { // without peers a region still has itself
		members = []peers.Member{{RegionMember: fleet.RegionMember{Self: true, MemberRecord: fleet.MemberRecord{Name: s.region}}}}
	}
	followed, err := s.followed(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.Object
	for _, m := range members {
		if m.Removed {
			continue
		}
		status := regionStatus(m)
		status.Followed = followed[m.Name]
		view, err := s.regionView(ctx, m, &status)
		if err != nil {
			return nil, err
		}
		out = append(out, view)
	}
	return out, nil
}

// regionView shows a region: itself as it declared itself, a peer as it tells.
func (s *server) regionView(ctx context.Context, m peers.Member, status *api.RegionStatus) (api.Object, error) {
	about := m.About
	view := api.Object{
		Kind: string(fleet.KindRegion), Name: string(m.Name), Project: string(fleet.DefaultProject), UID: about.UID, Generation: about.Generation,
		CreatedAt: m.AddedAt, UpdatedAt: m.AddedAt, Spec: json.RawMessage("{}"),
	}
	var err error
	if m.Self {
		if about, err = s.store.About(ctx); err != nil {
			return view, err
		}
		if status.Recovering, err = s.store.NotCompared(ctx); err != nil {
			return view, err
		}
		declared, err := s.store.GetObject(ctx, fleet.RegionKey(m.Name))
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // a server declares it when it starts
			return view, err
		}
		if err == nil {
			view = shown(ctx, declared)
		}
	} else if about.Spec != (fleet.RegionSpec{}) { // a peer that was not reached yet has told nothing
		if view.Spec, err = json.Marshal(about.Spec); err != nil {
			return view, err
		}
	}
	status.Builds, status.Upgrading = about.Builds, len(about.Builds) > 1
	view.Status, err = json.Marshal(status)
	return view, err
}

// followed is what this region has of its peers.
func (s *server) followed(ctx context.Context) (map[fleet.RegionName]*api.RegionFollowed, error) {
	streams, err := s.store.Streams(ctx)
	if err != nil {
		return nil, err
	}
	var kept map[fleet.RegionName][]copies.KeptGeneration
	if serve.CallOf(ctx).Project == "" { // of whichever project they were
		if kept, err = s.store.KeptGenerations(ctx); err != nil {
			return nil, err
		}
	}
	out := map[fleet.RegionName]*api.RegionFollowed{}
	for _, st := range streams {
		out[st.Peer] = followedView(st, kept[st.Peer])
	}
	syncs, err := s.store.Syncs(ctx)
	for _, c := range syncs {
		if f := out[c.Peer]; f != nil {
			f.Compared = comparedView(c)
		}
	}
	return out, err
}

func followedView(st copies.Stream, kept []copies.KeptGeneration) *api.RegionFollowed {
	f := &api.RegionFollowed{Copies: st.Copies, Quarantined: st.Quarantined, Waiting: st.Waiting}
	if st.Lag >= 0 {
		lag := st.Lag.Seconds()
		f.LagSeconds = &lag
	}
	for _, k := range kept {
		f.Kept = append(f.Kept, api.KeptGeneration{Template: string(k.Name), Generation: k.Generation, UsedBy: k.UsedBy})
	}
	return f
}

func regionStatus(m peers.Member) api.RegionStatus {
	return api.RegionStatus{
		Self: m.Self, Address: m.Address, Disabled: m.Disabled, Reachable: m.Self || m.Reachable && !m.Disabled, LastSeen: m.SeenAt,
		AdmittedBy: string(m.AdmittedBy), Problem: m.Problem,
	}
}

func (s *server) inviteRegion(ctx context.Context, in *createInput) (*tokenOutput, error) {
	var req api.RegionInvitation
	if _, err := s.ReadJSON(ctx, &req); err != nil {
		return nil, err
	}
	if err := fleet.ValidateName("/name", req.Name); err != nil {
		return nil, err
	}
	if req.Seconds == 0 {
		req.Seconds = defaultJoin
	}
	if req.Seconds < 0 || req.Seconds > maxJoin {
		return nil, fleet.Errorf(fleet.Invalid, "invalid lifetime: want 1 to %d seconds", maxJoin).At("/seconds")
	}
	if s.network == nil {
		return nil, errNoPeers
	}
	actor := serve.CallOf(ctx).Actor
	if in.DryRun {
		return tokenAnswer(invitationView(peers.Invitation{Region: fleet.RegionName(req.Name), CreatedBy: actor, CreatedAt: s.Now()}), "", true), nil
	}
	token, made, err := s.network.Invite(ctx, fleet.RegionName(req.Name), actor, time.Duration(req.Seconds)*time.Second)
	if err != nil {
		return nil, err
	}
	s.Log.Info("region invited", "region", req.Name, "by", actor)
	return tokenAnswer(invitationView(made), token, false), nil
}

func invitationView(in peers.Invitation) api.Token {
	view := api.Token{ID: in.ID, Region: string(in.Region), CreatedBy: in.CreatedBy, CreatedAt: in.CreatedAt, UsedAt: in.UsedAt}
	if !in.ExpiresAt.IsZero() {
		view.ExpiresAt = &in.ExpiresAt
	}
	return view
}

func (s *server) listInvitations(ctx context.Context, in *listInput) (*tokensOutput, error) {
	after, err := timePlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListInvitations(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return tokensAnswer(page(rows, in.Limit, func(i peers.Invitation) string { return timeCursor(i.CreatedAt, i.ID) }), invitationView), nil
}

func (s *server) revokeInvitation(ctx context.Context, in *revokeInput) (*struct{}, error) {
	if in.DryRun {
		return nil, nil
	}
	return nil, s.store.DeleteInvitation(ctx, in.ID)
}

func (s *server) joinRegion(ctx context.Context, in *createInput) (*objectOutput, error) {
	var req api.RegionJoin
	if _, err := s.ReadJSON(ctx, &req); err != nil {
		return nil, err
	}
	if err := fleet.ValidatePeerAddress("/address", req.Address); err != nil {
		return nil, err
	}
	if s.network == nil {
		return nil, errNoPeers
	}
	if in.DryRun {
		return &objectOutput{}, nil
	}
	name, err := s.network.Join(ctx, req.Address, req.Token)
	if err != nil {
		return nil, err
	}
	s.Log.Info("region joined", "through", name, "by", serve.CallOf(ctx).Actor)
	o, err := s.regionNamed(ctx, string(name))
	return &objectOutput{Body: o}, err
}

var errNoPeers = fleet.Errorf(fleet.Precondition, "this region has no peer address").
	WithHint("start its servers with --peers HOST:PORT and --peers-url")

// turnRegion answers with the peer as it is then; a removed one as it was.
func (s *server) turnRegion(ctx context.Context, in *turnRegionInput, verb string, do func(context.Context, fleet.RegionName) error) (*objectOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	before, err := s.regionNamed(ctx, in.Name)
	if err != nil || in.DryRun {
		return &objectOutput{Body: before}, err
	}
	if err := do(ctx, fleet.RegionName(in.Name)); err != nil {
		return nil, err
	}
	s.Log.Info("region: "+verb, "region", in.Name, "by", serve.CallOf(ctx).Actor)
	after, err := s.regionNamed(ctx, in.Name)
	if fleet.KindOf(err) == fleet.NotFound {
		return &objectOutput{Body: before}, nil
	}
	return &objectOutput{Body: after}, err
}
