package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PutDeployment declares a deployment and has it run.
func (c *Client) PutDeployment(ctx context.Context, name string, in DeploymentPut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindDeployment, Name: name}, in, m)
}

// StageDeployment declares a deployment without releasing anything: DeployDeployment does that
// later.
func (c *Client) StageDeployment(ctx context.Context, name string, in DeploymentPut, m Mutation) (Accepted, error) {
	return c.Stage(ctx, ObjectKey{Kind: KindDeployment, Name: name}, in, m)
}

// DeployDeployment has run what is declared, as it was written last.
func (c *Client) DeployDeployment(ctx context.Context, name string, in ActionRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindDeployment, Name: name}, "deploy", in, m)
}

// RestartDeployment replaces every replica by a new one.
func (c *Client) RestartDeployment(ctx context.Context, name string, in RestartRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindDeployment, Name: name}, "restart", in, m)
}

// ScaleDeployment sets how many replicas there are to be, within the bounds of the spec.
func (c *Client) ScaleDeployment(ctx context.Context, name string, in ScaleRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindDeployment, Name: name}, "scale", in, m)
}

// EndedDeployments lists those that have ended and are declared no more, as long as their record
// is kept. They have a status, and no spec.
func (c *Client) EndedDeployments(ctx context.Context, p Page) (List[Object], error) {
	q := p.query()
	q.Set("ended", "true")
	var l List[Object]
	_, err := c.do(ctx, readCall(q, "deployments"), &l)
	return l, err
}

// PutPool declares a pool of nodes.
func (c *Client) PutPool(ctx context.Context, name string, in PoolPut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindPool, Name: name}, in, m)
}

// ReplicaQuery narrows a list of replicas; Ended adds those that have ended.
type ReplicaQuery struct {
	Page
	Deployment string
	Node       string
	Ended      bool
}

// Replicas lists replicas of all deployments, or of one.
func (c *Client) Replicas(ctx context.Context, in ReplicaQuery) (List[Replica], error) {
	q := in.query()
	queryText(q, "deployment", in.Deployment)
	queryText(q, "node", in.Node)
	if in.Ended {
		q.Set("ended", "true")
	}
	var l List[Replica]
	_, err := c.do(ctx, readCall(q, "replicas"), &l)
	return l, err
}

// Replica reads a replica, whether it runs or has ended.
func (c *Client) Replica(ctx context.Context, id string) (Replica, error) {
	var r Replica
	_, err := c.do(ctx, readCall(nil, "replicas", id), &r)
	return r, err
}

// DeleteReplica ends one replica; another takes its place.
func (c *Client) DeleteReplica(ctx context.Context, deployment, id string, m Mutation) (Replica, error) {
	var r Replica
	_, err := c.do(ctx, writeCall(http.MethodDelete, m, nil, "deployments", deployment, "replicas", id), &r)
	return r, err
}

// DeploymentRevisions lists what was released of a deployment, newest first.
func (c *Client) DeploymentRevisions(ctx context.Context, name string, p Page) (List[DeploymentRevision], error) {
	var l List[DeploymentRevision]
	_, err := c.do(ctx, readCall(p.query(), "deployments", name, "revisions"), &l)
	return l, err
}

// Rollouts lists how a deployment moved to newer revisions, newest first.
func (c *Client) Rollouts(ctx context.Context, name string, p Page) (List[Rollout], error) {
	var l List[Rollout]
	_, err := c.do(ctx, readCall(p.query(), "deployments", name, "rollouts"), &l)
	return l, err
}

// Decisions lists what became of a deployment and its replicas, newest first.
func (c *Client) Decisions(ctx context.Context, name string, p Page) (List[Decision], error) {
	var l List[Decision]
	_, err := c.do(ctx, readCall(p.query(), "deployments", name, "decisions"), &l)
	return l, err
}

// Explain says why a deployment is where it is.
func (c *Client) Explain(ctx context.Context, name string) (Explanation, error) {
	var e Explanation
	_, err := c.do(ctx, readCall(nil, "deployments", name, "explain"), &e)
	return e, err
}

// Top says what the replicas of a deployment take of their nodes.
func (c *Client) Top(ctx context.Context, name string) (DeploymentTop, error) {
	var t DeploymentTop
	_, err := c.do(ctx, readCall(nil, "deployments", name, "top"), &t)
	return t, err
}

// ReplicaLogQuery asks for output of one replica from an offset on; of all that live when
// Replica is empty.
type ReplicaLogQuery struct {
	Replica ReplicaID
	After   int64
	Limit   int
}

// DeploymentLogs reads what replicas wrote, oldest first.
func (c *Client) DeploymentLogs(ctx context.Context, name string, in ReplicaLogQuery) (List[ReplicaLogChunk], error) {
	q := url.Values{}
	queryText(q, "replica", string(in.Replica))
	queryInt(q, "after", in.After)
	queryInt(q, "limit", int64(in.Limit))
	var l List[ReplicaLogChunk]
	_, err := c.do(ctx, readCall(q, "deployments", name, "logs"), &l)
	return l, err
}

// Bytes is the output that a chunk holds.
func (l ReplicaLogChunk) Bytes() ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(l.Data)
	if err != nil {
		return nil, fleet.Errorf(Internal, "read output of replica %s: %w", l.Replica, err)
	}
	return data, nil
}
