package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// X18: nothing comes from a peer that is not reached, whatever came before.
func TestSyncStatus(t *testing.T) {
	t.Parallel()
	lag, began := 12.5, testNow
	followed := &api.RegionFollowed{Copies: 3, LagSeconds: &lag}
	comparing := &api.RegionFollowed{Compared: &api.RegionCompared{StartedAt: &began, Done: 2, Ranges: 9}}
	r := newRegion(t)
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/api/v1/regions" {
			return false
		}
		var list api.List[api.Object]
		for name, status := range map[string]api.RegionStatus{
			"test": {Self: true}, "up": {Reachable: true, Followed: followed}, "compared": {Reachable: true, Followed: comparing},
			"cut": {Followed: followed}, "cut-off": {Followed: comparing}, "off": {Disabled: true, Followed: followed}, "new": {Reachable: true},
		} {
			o := api.Object{Kind: "region", Name: name}
			o.Status, _ = json.Marshal(status)
			list.Items = append(list.Items, o)
		}
		reply(w, 200, list)
		return true
	}
	got := newShell(t, r).ok("sync", "status").stdout
	require.NotContains(t, got, "test ")
	for name, state := range map[string]string{
		"up": "following +12.5s", "compared": "comparing 2 of 9", "cut": "unreachable +12.5s", "cut-off": "unreachable", "off": "disabled", "new": "not followed",
	} {
		require.Regexp(t, `(?m)^`+name+` +`+state, got)
	}
}
