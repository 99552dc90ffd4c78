package api

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// OperationQuery narrows the list of operations.
type OperationQuery struct {
	Page
	Site     string
	Instance string
	Node     string
	Fleet    string
	// Deployment narrows to one.
	Deployment string
	State      string
}

// Operation reads an operation. With a wait it is a long poll, which answers when the
// operation ends or the wait is over, whichever comes first.
func (c *Client) Operation(ctx context.Context, id string, wait time.Duration) (Operation, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	var o Operation
	_, err := c.do(ctx, readCall(q, "operations", id), &o)
	return o, err
}

// Operations lists operations, newest first.
func (c *Client) Operations(ctx context.Context, in OperationQuery) (List[Operation], error) {
	q := in.query()
	queryText(q, "site", in.Site)
	queryText(q, "instance", in.Instance)
	queryText(q, "node", in.Node)
	queryText(q, "fleet", in.Fleet)
	queryText(q, "deployment", in.Deployment)
	queryText(q, "state", in.State)
	var l List[Operation]
	_, err := c.do(ctx, readCall(q, "operations"), &l)
	return l, err
}

// CancelOperation asks for the end of an operation; it may still end otherwise.
func (c *Client) CancelOperation(ctx context.Context, id string, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodPost, m, nil, "operations", id, "cancel"))
}
