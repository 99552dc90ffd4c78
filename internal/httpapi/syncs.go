package httpapi

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
)

// syncRegion has the copies of what a peer owns compared with the peer.
func (s *server) syncRegion(ctx context.Context, w postgres.Write, in api.RegionSync) (postgres.Operation, error) {
	peer, err := s.regionNamed(ctx, w.Key.Name)
	if err != nil {
		return postgres.Operation{}, err
	}
	if peer.Name == string(s.region) {
		return postgres.Operation{}, fleet.Errorf(fleet.Invalid, "region %s is this one: name a peer", peer.Name).At("name").WithHint("holdfast get regions")
	}
	return s.store.AskSync(ctx, copies.SyncRequest{Request: w.Request, Peer: fleet.RegionName(peer.Name), Accept: in.AcceptRemovals})
}

func comparedView(c copies.Sync) *api.RegionCompared {
	return &api.RegionCompared{
		StartedAt: c.StartedAt, EndedAt: c.EndedAt, Done: c.At, Ranges: c.Ranges, Compared: c.Compared, Differed: c.Differed,
		Written: c.Written, Removed: c.Removed, Lost: c.Lost, Waiting: c.Waiting,
	}
}

func named(k fleet.CopyKey, v fleet.CopyVersion) api.ObjectNamed {
	return api.ObjectNamed{
		Region: string(k.Region), Kind: string(k.Kind), Site: k.Scope, Name: k.Name, OwnerEpoch: v.OwnerEpoch, Number: v.Number,
	}
}

type quarantineInput struct {
	NameParam
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
}

type quarantineOutput struct{ Body api.List[api.SetAside] }

func (s *server) listQuarantine(ctx context.Context, in *quarantineInput) (*quarantineOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	if _, err := s.regionNamed(ctx, in.Name); err != nil {
		return nil, err
	}
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	var after fleet.CopyKey
	if place != "" {
		parts := strings.Split(place, "\n")
		if len(parts) != 4 {
			return nil, badCursor(place)
		}
		after = fleet.CopyKey{Region: fleet.RegionName(parts[3]), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(parts[0]), Scope: parts[1], Name: parts[2]}}
	}
	rows, err := s.store.Quarantined(ctx, fleet.RegionName(in.Name), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(a copies.SetAside) string {
		return strings.Join([]string{string(a.Key.Kind), a.Key.Scope, a.Key.Name, string(a.Key.Region)}, "\n")
	})
	out := &quarantineOutput{Body: api.List[api.SetAside]{Items: make([]api.SetAside, len(cut.Items)), Next: cut.Next}}
	for i, a := range cut.Items {
		out.Body.Items[i] = api.SetAside{ObjectNamed: named(a.Key, a.Version), Reason: a.Reason, At: a.At}
	}
	return out, nil
}

type lostInput struct {
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
}

type lostOutput struct{ Body api.List[api.LostWrite] }

func (s *server) listLostWrites(ctx context.Context, in *lostInput) (*lostOutput, error) {
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if place != "" {
		if after, err = strconv.ParseInt(place, 10, 64); err != nil || after <= 0 {
			return nil, badCursor(place)
		}
	}
	rows, err := s.store.LostWrites(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(l copies.LostWrite) string { return strconv.FormatInt(l.ID, 10) })
	out := &lostOutput{Body: api.List[api.LostWrite]{Items: make([]api.LostWrite, len(cut.Items)), Next: cut.Next}}
	for i, l := range cut.Items {
		view := api.LostWrite{ObjectNamed: named(l.Key, l.Version), ID: l.ID, Owner: string(l.Peer), Reason: l.Reason, At: l.At}
		if l.Object != nil {
			o := shown(ctx, *l.Object)
			view.Object = &o
		}
		out.Body.Items[i] = view
	}
	return out, nil
}
