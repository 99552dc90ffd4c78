package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// apiVersion is a version of the Engine API, for example 1.44.
type apiVersion struct{ major, minor int }

// The supported versions: of engines from 2020 on; today's engines refuse the oldest.
var oldest, newest = apiVersion{1, 41}, apiVersion{1, 52}

func (v apiVersion) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v apiVersion) compare(o apiVersion) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor))
}

func parseVersion(text string) (apiVersion, error) {
	major, minor, _ := strings.Cut(text, ".")
	var v apiVersion
	var errs [2]error
	v.major, errs[0] = strconv.Atoi(major)
	v.minor, errs[1] = strconv.Atoi(minor)
	if errs[0] != nil || errs[1] != nil {
		return v, fleet.Errorf(fleet.Unavailable, "invalid version %.20q of the Engine API", text)
	}
	return v, nil
}

// agreed is the newest version that both sides support. The engine reports its own in calls without a version,
// and refuses every call of a version that it does not support.
func (e *engine) agreed(ctx context.Context) (apiVersion, error) {
	e.mu.Lock()
	v := e.version
	e.mu.Unlock()
	if v != (apiVersion{}) {
		return v, nil
	}
	return e.ping(ctx)
}

// ping checks that the engine answers, and reads its version.
func (e *engine) ping(ctx context.Context) (apiVersion, error) {
	ctx, cancel := limited(ctx, e.limit)
	defer cancel()
	resp, err := e.send(ctx, request{method: http.MethodGet, path: "/_ping"})
	if err != nil {
		return apiVersion{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return apiVersion{}, errors.Join(e.refusal(resp), resp.Body.Close())
	}
	if err := resp.Body.Close(); err != nil {
		return apiVersion{}, fleet.Errorf(fleet.Unavailable, "read the engine's answer: %w", err)
	}
	v, err := parseVersion(resp.Header.Get("Api-Version"))
	if err != nil {
		return v, err
	}
	if v.compare(oldest) < 0 {
		return v, fleet.Errorf(fleet.Unavailable, "the engine has version %s of its API; %s or newer is required", v, oldest)
	}
	if v.compare(newest) > 0 {
		v = newest
	}
	e.agree(v)
	return v, nil
}

func (e *engine) agree(v apiVersion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = v
}
