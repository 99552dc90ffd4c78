package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PutInstance declares an instance and starts its delivery.
func (c *Client) PutInstance(ctx context.Context, key ObjectKey, in InstancePut, m Mutation) (Accepted, error) {
	return c.Put(ctx, key, in, m)
}

// StageInstance declares an instance without releasing anything: deploy does that later.
func (c *Client) StageInstance(ctx context.Context, key ObjectKey, in InstancePut, m Mutation) (Accepted, error) {
	return c.Stage(ctx, key, in, m)
}

// Deploy brings the desired revision to the site's nodes.
func (c *Client) Deploy(ctx context.Context, key ObjectKey, in ActionRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, key, "deploy", in, m)
}

// Enable has the instance run.
func (c *Client) Enable(ctx context.Context, key ObjectKey, in ActionRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, key, "enable", in, m)
}

// Disable stops the instance; its nodes keep the config.
func (c *Client) Disable(ctx context.Context, key ObjectKey, in ActionRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, key, "disable", in, m)
}

// Rollback releases an earlier revision's content under a new number.
func (c *Client) Rollback(ctx context.Context, key ObjectKey, in RollbackRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, key, "rollback", in, m)
}

// Deliveries lists the delivery history of an instance, newest first.
func (c *Client) Deliveries(ctx context.Context, key ObjectKey, p Page) (List[Delivery], error) {
	var l List[Delivery]
	_, err := c.do(ctx, readCall(p.query(), objectPath(key, "deliveries")...), &l)
	return l, err
}

// Config copies the exact config bytes of an instance to w and says how many there were.
// After an error w may hold a part of them.
func (c *Client) Config(ctx context.Context, key ObjectKey, w io.Writer) (int64, error) {
	r := readCall(nil, objectPath(key, "config")...)
	r.header.Set("Accept", "*/*")
	var written int64
	err := c.try(ctx, r, func(resp *http.Response) error {
		from := &source{r: resp.Body}
		n, err := io.Copy(w, from)
		written = n
		switch {
		case err == nil:
			return nil
		case from.err != nil:
			// Not tried again: w already has the first part.
			return fleet.Errorf(Unavailable, "the config ended after %d bytes: %w", n, from.err)
		}
		return fmt.Errorf("write config: %w", err)
	})
	return written, err
}

// source remembers whether it was reading that failed.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// LogQuery asks for output of an instance: of one node, or of all when Node is empty.
type LogQuery struct {
	Node  string
	After int64
	Limit int
}

// Bytes is the output that a chunk holds; on the wire it is base64, because programs write
// what is no text too.
func (l LogChunk) Bytes() ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(l.Data)
	if err != nil {
		return nil, fleet.Errorf(Internal, "read output of node %s: %w", l.Node, err)
	}
	return data, nil
}

// Logs reads output that an instance wrote on its nodes.
func (c *Client) Logs(ctx context.Context, key ObjectKey, in LogQuery) (List[LogChunk], error) {
	q := Page{Limit: in.Limit}.query()
	queryText(q, "node", in.Node)
	queryInt(q, "after", in.After)
	var l List[LogChunk]
	_, err := c.do(ctx, readCall(q, objectPath(key, "logs")...), &l)
	return l, err
}
