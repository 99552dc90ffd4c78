package httpapi

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
)

// fakeRegions are other regions.
type fakeRegions struct {
	invite func(region fleet.RegionName, life time.Duration) (string, peers.Invitation, error)
	join   func(address, token string) (fleet.RegionName, error)
}

var _ Regions = fakeRegions{}

func (f fakeRegions) Invite(_ context.Context, region fleet.RegionName, _ string, life time.Duration) (string, peers.Invitation, error) {
	return f.invite(region, life)
}

func (f fakeRegions) Join(_ context.Context, address, token string) (fleet.RegionName, error) {
	return f.join(address, token)
}

// meets has a region that declared itself know a peer.
func (r *region) meets(name fleet.RegionName) {
	r.t.Helper()
	own, other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
	record := func(name fleet.RegionName, key ed25519.PrivateKey) fleet.MemberRecord {
		return fleet.MemberRecord{
			Name: name, Key: key.Public().(ed25519.PublicKey), Number: 1, Address: "https://" + string(name) + ":1", AddressNumber: 1,
		}.SignAddress(key).SignAdmission("test", own)
	}
	ctx := r.t.Context()
	require.NoError(r.t, r.store.Announce(ctx, func(fleet.MemberRecord) fleet.MemberRecord { return record("test", own) }))
	_, err := r.store.TakeMembers(ctx, []fleet.MemberRecord{record(name, other)})
	require.NoError(r.t, err)
	_, err = r.store.Declare(ctx, postgres.Write{
		Key: fleet.RegionKey("test"), Request: postgres.Request{Project: fleet.DefaultProject, Actor: "region:test"},
	}, fleet.RegionSpec{Location: "here"})
	require.NoError(r.t, err)
}

func (r *region) regionStatus(name string) api.RegionStatus {
	r.t.Helper()
	a := r.call(r.viewer, http.MethodGet, "/api/v1/regions/"+name, nil)
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	var status api.RegionStatus
	require.NoError(r.t, json.Unmarshal(into[api.Object](r.t, a).Status, &status))
	return status
}

// M14, M30, M46
func TestRegions(t *testing.T) {
	t.Parallel()
	t.Run("this region and its peers are listed and paged", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		list := into[api.List[api.Object]](t, r.call(r.viewer, http.MethodGet, "/api/v1/regions", nil))
		require.Len(t, list.Items, 1, "a region without peers has itself")
		r.meets("us")
		list = into[api.List[api.Object]](t, r.call(r.viewer, http.MethodGet, "/api/v1/regions?limit=1", nil))
		require.Equal(t, "test", list.Items[0].Name)
		require.JSONEq(t, `{"location":"here","version":{"api":"","data":""}}`, string(list.Items[0].Spec))
		list = into[api.List[api.Object]](t, r.call(r.viewer, http.MethodGet, "/api/v1/regions?cursor="+list.Next, nil))
		require.Len(t, list.Items, 1)
		require.Equal(t, "us", list.Items[0].Name)
		require.Equal(t, api.RegionStatus{Address: "https://us:1", AdmittedBy: "test"}, r.regionStatus("us"))
		require.True(t, r.regionStatus("test").Self)
	})
	t.Run("a peer has its project, and what it told of itself", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.meets("us")
		peer := r.view("/api/v1/regions/us")
		require.Equal(t, []any{"default", "", int64(0), "{}"}, []any{peer.Project, peer.UID, peer.Generation, string(peer.Spec)}, "it was not reached yet")
		about, err := r.store.About(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.store.TellsOf(t.Context(), "us", about))
		peer, own := r.view("/api/v1/regions/us"), r.view("/api/v1/regions/test")
		require.NotEmpty(t, own.UID)
		require.Equal(t, []any{own.Project, own.UID, own.Generation}, []any{peer.Project, peer.UID, peer.Generation})
		require.JSONEq(t, string(own.Spec), string(peer.Spec))
	})
	t.Run("peers are disabled, enabled and removed by administrators", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.meets("us")
		turn := func(token, name, verb string) int {
			return r.call(token, http.MethodPost, "/api/v1/regions/"+name+"/"+verb, nil).status
		}
		require.Equal(t, http.StatusForbidden, turn(r.operator, "us", "disable"))
		require.Equal(t, http.StatusNotFound, turn(r.admin, "ap", "disable"))
		require.Equal(t, http.StatusBadRequest, turn(r.admin, "test", "disable"))
		require.Equal(t, http.StatusOK, turn(r.admin, "us", "disable?dryRun=true"))
		require.False(t, r.regionStatus("us").Disabled)
		require.Equal(t, http.StatusOK, turn(r.admin, "us", "disable"))
		require.True(t, r.regionStatus("us").Disabled)
		require.Equal(t, http.StatusOK, turn(r.admin, "us", "enable"))
		require.False(t, r.regionStatus("us").Disabled)
		require.Equal(t, http.StatusOK, turn(r.admin, "us", "remove"))
		require.Equal(t, http.StatusNotFound, turn(r.admin, "us", "remove"))
	})
	t.Run("a region declares itself, and is neither applied nor deleted", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.meets("us")
		a := r.call(r.admin, http.MethodDelete, "/api/v1/regions/test", nil)
		require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
		require.Contains(t, string(a.body), "a region declares itself")
		a = r.call(r.admin, http.MethodPost, "/api/v1/plan", map[string]any{"objects": []any{map[string]any{"kind": "Region", "name": "us", "spec": map[string]any{}}}})
		require.Contains(t, string(a.body), "a region declares itself")
	})
	t.Run("invitations and joins", func(t *testing.T) {
		t.Parallel()
		secret := "the-secret-of-the-invitation"
		r := setup(t, func(d *Deps) {
			d.Regions = fakeRegions{
				invite: func(region fleet.RegionName, life time.Duration) (string, peers.Invitation, error) {
					return secret, peers.Invitation{ID: "1", Region: region, ExpiresAt: now().Add(life)}, nil
				},
				join: func(address, token string) (fleet.RegionName, error) {
					if address != "https://us:1" || token != secret {
						return "", fleet.Errorf(fleet.Invalid, "no")
					}
					return "us", nil
				},
			}
		})
		r.meets("us")
		invite := func(in api.RegionInvitation) reply {
			return r.call(r.admin, http.MethodPost, "/api/v1/region-invitations", in)
		}
		a := invite(api.RegionInvitation{Name: "ap", Seconds: 60})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		made := into[api.Token](t, a)
		require.Equal(t, secret, made.Token)
		require.Equal(t, "ap", made.Region)
		require.Equal(t, http.StatusBadRequest, invite(api.RegionInvitation{Name: "../x"}).status)
		require.Equal(t, http.StatusBadRequest, invite(api.RegionInvitation{Name: "ap", Seconds: -1}).status)
		a = r.call(r.operator, http.MethodPost, "/api/v1/region-invitations", api.RegionInvitation{Name: "ap"})
		require.Equal(t, http.StatusForbidden, a.status)

		hash := make([]byte, 32)
		stored, err := r.store.Invite(t.Context(), peers.Invitation{Hash: hash, Region: "ap", CreatedBy: "x"}, time.Minute)
		require.NoError(t, err)
		list := into[api.List[api.Token]](t, r.call(r.admin, http.MethodGet, "/api/v1/region-invitations", nil))
		require.Len(t, list.Items, 1)
		require.Equal(t, "ap", list.Items[0].Region)
		require.Empty(t, list.Items[0].Token)
		require.Equal(t, http.StatusNoContent, r.call(r.admin, http.MethodDelete, "/api/v1/region-invitations/"+stored.ID, nil).status)
		require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodDelete, "/api/v1/region-invitations/"+stored.ID, nil).status)

		join := func(in api.RegionJoin) reply { return r.call(r.admin, http.MethodPost, "/api/v1/regions/join", in) }
		a = join(api.RegionJoin{Address: "https://us:1", Token: secret})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, "us", into[api.Object](t, a).Name)
		require.Equal(t, http.StatusBadRequest, join(api.RegionJoin{Address: "http://us:1", Token: secret}).status)
		require.Equal(t, http.StatusBadRequest, join(api.RegionJoin{Address: "https://us:1"}).status)
		require.NotContains(t, r.log.String(), secret) // X10
	})
	t.Run("without a peer address there is nobody to join", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		a := r.call(r.admin, http.MethodPost, "/api/v1/region-invitations", api.RegionInvitation{Name: "us"})
		require.Equal(t, http.StatusPreconditionFailed, a.status)
		a = r.call(r.admin, http.MethodPost, "/api/v1/regions/join", api.RegionJoin{Address: "https://us:1", Token: "x"})
		require.Equal(t, http.StatusPreconditionFailed, a.status)
		require.Contains(t, string(a.body), "--peers")
	})
}
