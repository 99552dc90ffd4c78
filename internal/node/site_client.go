package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// siteClient calls the machine endpoints of a site, with the token of one comparison.
type siteClient struct {
	client *Client
	base   string
	site   fleet.SiteName
	token  string
}

// maxSet bounds an expected set: more than a hundred thousand lines.
const maxSet = 64 << 20

// expected reads the site's expected set; unchanged is set if its version is still that of the last clean
// comparison. An answer that is cut short is an error, never a shorter set.
func (c *siteClient) expected(ctx context.Context, clean fleet.SetVersion) (set fleet.ExpectedSet, unchanged bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.path("deployments"), http.NoBody)
	if err != nil {
		return set, false, fleet.Errorf(fleet.Invalid, "invalid region address: want a URL")
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept-Encoding", "zstd, gzip")
	if clean != (fleet.SetVersion{}) {
		req.Header.Set("If-None-Match", "W/"+strconv.Quote(clean.String()))
	}
	resp, err := c.client.HTTP.Do(req)
	if err != nil {
		return set, false, fleet.Errorf(fleet.Communication, "reach the region: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	if resp.StatusCode == http.StatusNotModified && clean != (fleet.SetVersion{}) {
		set.Version, err = fleet.ParseSetVersion(resp.Header.Get(fleet.HeaderSetVersion))
		return set, err == nil && set.Version == clean, err
	}
	if resp.StatusCode != http.StatusOK {
		return set, false, fleet.Errorf(kindOf(resp.StatusCode), "the region answered %d for the expected set", resp.StatusCode)
	}
	err = readSet(resp, &set)
	return set, false, err
}

func readSet(resp *http.Response, set *fleet.ExpectedSet) error {
	var err error
	if set.Version, err = fleet.ParseSetVersion(resp.Header.Get(fleet.HeaderSetVersion)); err != nil {
		return fleet.Errorf(fleet.Communication, "the expected set came without its version: %w", err)
	}
	if set.Count, err = strconv.Atoi(resp.Header.Get(fleet.HeaderSetCount)); err != nil || set.Count < 0 {
		return fleet.Errorf(fleet.Communication, "the expected set came without its count")
	}
	body, done, err := plainBody(resp)
	if err != nil {
		return err
	}
	defer done()
	limited := &io.LimitedReader{R: body, N: maxSet}
	if err := json.UnmarshalRead(limited, &set.Instances); err != nil {
		return fleet.Errorf(fleet.Communication, "read the expected set: %w", err)
	}
	return nil
}

// plainBody decodes the content coding of an answer.
func plainBody(resp *http.Response) (io.Reader, func(), error) {
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return resp.Body, func() {}, nil
	case "zstd":
		r, err := borrowDecoder(resp.Body)
		if err != nil {
			return nil, nil, fmt.Errorf("decompress: %w", err)
		}
		return r, func() { giveBack(r) }, nil
	case "gzip":
		r, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, nil, fleet.Errorf(fleet.Communication, "decompress: %w", err)
		}
		return r, func() { _ = r.Close() }, nil // its checksum was compared at the end of the body
	default:
		return nil, nil, fleet.Errorf(fleet.Communication, "the region used the coding %.20q, which was not requested", coding)
	}
}

// tickets requests what the node needs to fetch the deployed revisions of some instances.
func (c *siteClient) tickets(ctx context.Context, names []fleet.InstanceName) ([]fleet.RefreshDeploymentCommand, error) {
	var out struct {
		Commands []fleet.RefreshDeploymentCommand `json:"commands"`
	}
	err := c.post(ctx, "tickets", map[string]any{"instances": names}, &out)
	asked := make(map[fleet.InstanceName]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	for i, cmd := range out.Commands {
		if !asked[cmd.Instance] || cmd.Revision.Action == fleet.ActionDelete {
			return nil, errors.Join(err, fleet.Errorf(fleet.Communication, "the region sent a ticket that was not requested"))
		}
		out.Commands[i].CentralFetchBaseURL = c.base
	}
	return out.Commands, err
}

// confirmAbsent asks by name about instances that the set does not list. Only an instance in the request can be
// dropped, and only by a delete.
func (c *siteClient) confirmAbsent(ctx context.Context, extras []fleet.Extra) (fleet.Absence, error) {
	var out fleet.Absence
	if err := c.post(ctx, "confirm-absent", map[string]any{"instances": extras}, &out); err != nil {
		return fleet.Absence{}, err
	}
	asked := make(map[fleet.InstanceName]fleet.Version, len(extras))
	for _, e := range extras {
		asked[e.Instance] = e.Version
	}
	for _, cmd := range out.Drop {
		held, is := asked[cmd.Instance]
		if !is || cmd.Revision.Action != fleet.ActionDelete || !cmd.Revision.Version.Newer(held) {
			return fleet.Absence{}, fleet.Errorf(fleet.Communication, "the region confirmed an instance absent that was not in the request")
		}
	}
	return out, nil
}

// reconciled sends the result of the comparison.
func (c *siteClient) reconciled(ctx context.Context, report fleet.ReconcileReport) error {
	return c.post(ctx, "reconciled", report, nil)
}

func (c *siteClient) post(ctx context.Context, tail string, body, into any) error {
	at := *c.client
	at.API = c.base
	return at.post(ctx, "/api/internal/sites/"+url.PathEscape(string(c.site))+"/"+tail, c.token, body, into)
}

func (c *siteClient) path(tail string) string {
	return strings.TrimRight(c.base, "/") + "/api/internal/sites/" + url.PathEscape(string(c.site)) + "/" + tail
}
