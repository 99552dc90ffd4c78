package node

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// maxItemBytes is far more than an item needs besides its run section.
	maxItemBytes = 4 << 10
	// maxReported is the number of results in one request.
	maxReported = fleet.MaxBatchItems
)

// batchClient calls the region about one batch, with its token.
type batchClient struct {
	fetcher *Fetcher
	cmd     fleet.BatchCommand
	token   string
}

// items reads the items of the batch. It returns an error if they are not the announced ones.
func (c *batchClient) items(ctx context.Context) ([]fleet.BatchItem, error) {
	var out struct {
		Items []fleet.BatchItem `json:"items"`
	}
	most := int64(c.cmd.Count) * (maxItemBytes + int64(base64.StdEncoding.EncodedLen(fleet.MaxRun)))
	err := c.fetcher.retry(ctx, c.request(), "batch items", func(ctx context.Context, tick func()) (bool, error) {
		return false, c.call(ctx, http.MethodGet, "items", nil, func(resp *http.Response) error {
			body, done, err := plainBody(resp)
			if err != nil {
				return again("read items: %w", err)
			}
			defer done()
			out.Items = nil
			if err := json.UnmarshalRead(&io.LimitedReader{R: tickReader(body, tick), N: most}, &out); err != nil {
				return again("read items: %w", err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if len(out.Items) != c.cmd.Count || fleet.BatchDigest(out.Items) != c.cmd.Digest {
		return nil, communication("the batch's items differ from the announced ones")
	}
	names := make(map[fleet.InstanceName]bool, len(out.Items))
	for _, item := range out.Items {
		if names[item.Instance] {
			return nil, communication("the batch names an instance twice")
		}
		names[item.Instance] = true
	}
	return out.Items, nil
}

func tickReader(r io.Reader, tick func()) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if n > 0 {
			tick()
		}
		return n, err
	})
}

// bodies fetches bodies in one stream.
func (c *batchClient) bodies(ctx context.Context, want map[fleet.Hash]int64, take func(fleet.Hash, []byte)) (int64, error) {
	wire, err := c.fetcher.FetchBodies(ctx, BodiesRequest{c.request(), c.path("bodies")}, want, take)
	if fleet.KindOf(err) == fleet.NotFound {
		err = refusal(http.StatusNotFound) // the batch has ended
	}
	return wire, err
}

// results sends the results of the items to the region.
func (c *batchClient) results(ctx context.Context, all []fleet.BatchResult) error {
	for len(all) > 0 {
		page := all[:min(maxReported, len(all))]
		all = all[len(page):]
		raw, err := json.Marshal(map[string]any{"results": page})
		if err != nil {
			return fleet.Errorf(fleet.Internal, "encode results: %w", err)
		}
		err = c.fetcher.retry(ctx, c.request(), "batch results", func(ctx context.Context, _ func()) (bool, error) {
			return false, c.call(ctx, http.MethodPost, "results", raw, func(*http.Response) error { return nil })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *batchClient) request() FetchRequest {
	return FetchRequest{DeploymentID: string(c.cmd.BatchID), Token: c.token, IdleTimeout: c.cmd.IdleTimeout}
}

func (c *batchClient) path(tail string) string {
	return strings.TrimRight(c.cmd.CentralFetchBaseURL, "/") + "/api/internal/batches/" + string(c.cmd.BatchID) + "/" + tail
}

// call makes one request, and cancels it if nothing arrives for too long.
func (c *batchClient) call(ctx context.Context, method, tail string, body []byte, read func(*http.Response) error) error {
	ctx, stall := newStall(ctx, orDefault(c.fetcher.ReadIdle, defaultReadIdle))
	defer stall.stop()
	r, err := http.NewRequestWithContext(ctx, method, c.path(tail), bytes.NewReader(body))
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "invalid fetch base URL").At("/centralFetchBaseUrl")
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept-Encoding", "zstd, gzip")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.fetcher.Client.Do(r)
	if err != nil {
		return again("reach the region: %w", stall.explain(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		return refusal(resp.StatusCode)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{stall.watch(resp.Body, func() {}), resp.Body}
	return read(resp)
}
