package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

const (
	// maxAnswer bounds the small answers of the region.
	maxAnswer = 4 << 20
	// callTimeout bounds one small request.
	callTimeout = 30 * time.Second
)

// Client calls the region's machine endpoints for nodes: small requests and uploads. Fetcher downloads configs.
type Client struct {
	API  string // for example http://region:8080
	HTTP *http.Client
	Key  func() identity.Key
	Now  func() time.Time
}

// EnrolRequest makes a node known to its region.
type EnrolRequest struct {
	JoinToken  string         `json:"joinToken"`
	Node       fleet.NodeName `json:"node"`
	Site       fleet.SiteName `json:"site"`
	SigningKey string         `json:"signingKey"` // Ed25519, base64
	SealingKey string         `json:"sealingKey"` // X25519, base64
}

// Placement is the region's answer about a node: its place and its rights.
type Placement struct {
	Region string     `json:"region,omitempty"`
	Role   fleet.Role `json:"role"`
	Epoch  int64      `json:"epoch"`
	// RotateKey requests a new key.
	RotateKey bool `json:"rotateKey,omitempty"`
	// First is set at the first enrolment of the name, with any key: it has not voted yet.
	First bool `json:"first,omitempty"`
	// CommandKeys are the public keys by which the region may sign commands. Older regions, which sign none, omit
	// them.
	CommandKeys [][]byte `json:"commandKeys,omitempty"`
}

// StartedPage is one page of what a node holds when it starts.
type StartedPage struct {
	StartID   string               `json:"startId"`
	Instances []fleet.NodeInstance `json:"instances"`
	Last      bool                 `json:"last"`
}

// DeliveryProgress is how many bytes of a delivery a node has.
type DeliveryProgress struct {
	DeploymentID string `json:"deploymentId"`
	Bytes        int64  `json:"bytes"`
	Total        int64  `json:"total"`
}

// Report is what changed on a node.
type Report struct {
	Instances []fleet.NodeInstance `json:"instances"`
	Progress  []DeliveryProgress   `json:"progress"`
	// Counters go with a report that only shows that the node lives.
	Counters map[string]int64 `json:"counters,omitempty"`
	// Refusals are the node's refusals since its last report of them. Older regions omit them.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is one refusal by the node.
type Refusal struct {
	audit.Refusal
	AgeMS int64 `json:"ageMs"`
}

// LogPiece is a part of an instance's output, at most 64 KiB.
type LogPiece struct {
	Instance fleet.InstanceName `json:"instance"`
	Offset   int64              `json:"offset"`
	Data     []byte             `json:"data"` // base64 in JSON
	Skipped  int64              `json:"skipped"`
}

// Enrol registers the node's key. The hint of a refusal tells what to do.
func (c *Client) Enrol(ctx context.Context, joinToken string, site fleet.SiteName) (Placement, error) {
	var at Placement
	key := c.Key()
	sealing, err := key.SealingPublic()
	if err != nil {
		return at, err
	}
	err = c.post(ctx, "/api/internal/nodes/enrol", "", EnrolRequest{
		JoinToken: joinToken, Node: key.Node(), Site: site,
		SigningKey: identity.EncodePublic(key.SigningPublic()), SealingKey: identity.EncodePublic(sealing[:]),
	}, &at)
	if err == nil && at.Region == "" {
		err = fleet.Errorf(fleet.Unavailable, "the region did not send its name")
	}
	return at, enrolHint(key.Node(), err)
}

func enrolHint(node fleet.NodeName, err error) error {
	var known *fleet.Error
	if !errors.As(err, &known) {
		return err
	}
	switch known.Kind { //nolint:exhaustive // only these two have their own hint
	case fleet.Unauthenticated:
		return fmt.Errorf("enrol node: %w", known.WithHint("the join token is wrong, used or expired; make a new one with holdfast join-token create"))
	case fleet.Conflict:
		return fmt.Errorf("enrol node: %w", known.WithHint("a node "+string(node)+" with another key is enrolled: revoke it with holdfast node revoke "+string(node)+", or give back its node.key"))
	}
	return fmt.Errorf("enrol node: %w", err)
}

// Started sends one page of what the node holds.
func (c *Client) Started(ctx context.Context, page StartedPage) (Placement, error) {
	var at Placement
	return at, c.signed(ctx, "started", page, &at)
}

// Report sends what changed. The answer has the node's current role, also if it changed without a delivery to
// the node.
func (c *Client) Report(ctx context.Context, r Report) (Placement, error) {
	var at Placement
	return at, c.signed(ctx, "reports", r, &at)
}

// Log sends a piece of output.
func (c *Client) Log(ctx context.Context, l LogPiece) error { return c.signed(ctx, "logs", l, nil) }

// signed sends a call signed by the node's key. If the key changed during the call, a refusal means nothing,
// and signed retries with the new key.
func (c *Client) signed(ctx context.Context, tail string, body, into any) error {
	key := c.Key()
	err := c.signedBy(ctx, key, tail, body, into)
	if now := c.Key(); fleet.KindOf(err) == fleet.Unauthenticated && !now.Same(key) {
		err = c.signedBy(ctx, now, tail, body, into)
	}
	return err
}

func (c *Client) signedBy(ctx context.Context, key identity.Key, tail string, body, into any) error {
	token, err := key.Sign(identity.RegionAudience, c.Now())
	if err != nil {
		return err
	}
	return c.post(ctx, "/api/internal/nodes/"+url.PathEscape(string(key.Node()))+"/"+tail, token, body, into)
}

func (c *Client) post(ctx context.Context, path, token string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.API, "/")+path, bytes.NewReader(raw))
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "invalid region address: want a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fleet.Errorf(fleet.Communication, "reach the region: %w", err).WithHint(hint.Region(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	return c.answer(resp, into)
}

// answer reads an answer; of a refusal it reads only the status, which determines the kind.
func (c *Client) answer(resp *http.Response, into any) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fleet.Errorf(fleet.Communication, "read the region's answer: %w", err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fleet.Errorf(kindOf(resp.StatusCode), "the region answered %d", resp.StatusCode)
	}
	if into == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fleet.Errorf(fleet.Communication, "decode the region's answer: %w", err)
	}
	return nil
}

func kindOf(status int) fleet.Kind {
	switch status {
	case http.StatusBadRequest:
		return fleet.Invalid
	case http.StatusUnauthorized:
		return fleet.Unauthenticated
	case http.StatusForbidden:
		return fleet.Denied
	case http.StatusNotFound:
		return fleet.NotFound
	case http.StatusConflict:
		return fleet.Conflict
	case http.StatusPreconditionFailed:
		return fleet.Precondition
	case http.StatusRequestEntityTooLarge:
		return fleet.TooLarge
	case http.StatusUnprocessableEntity:
		return fleet.IllegalState
	case http.StatusTooManyRequests:
		return fleet.RateLimited
	}
	return fleet.Unavailable
}
