package api

import (
	"context"
	"net/url"
	"strconv"
)

// PutFleet declares a fleet change and runs it.
func (c *Client) PutFleet(ctx context.Context, name string, in FleetPut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindFleet, Name: name}, in, m)
}

// StageFleet declares a fleet change and runs nothing: its verb run does that later.
func (c *Client) StageFleet(ctx context.Context, name string, in FleetPut, m Mutation) (Accepted, error) {
	return c.Stage(ctx, ObjectKey{Kind: KindFleet, Name: name}, in, m)
}

// FleetVerbs are what can be asked of a fleet change.
func FleetVerbs() []string {
	turns := FleetTurns()
	verbs := make([]string, len(turns))
	for i, t := range turns {
		verbs[i] = t.Verb
	}
	return verbs
}

// TurnFleet asks something of a fleet change: one of FleetVerbs.
func (c *Client) TurnFleet(ctx context.Context, name, verb string, in ActionRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindFleet, Name: name}, verb, in, m)
}

// FleetRuns lists the runs of a fleet change, newest first.
func (c *Client) FleetRuns(ctx context.Context, name string, p Page) (List[FleetRun], error) {
	var l List[FleetRun]
	_, err := c.do(ctx, readCall(p.query(), "fleets", name, "runs"), &l)
	return l, err
}

// FleetTargetQuery narrows the instances of a run; Run 0 is the newest.
type FleetTargetQuery struct {
	Page
	Run   int64
	State FleetTargetState
}

// FleetTargets lists the instances of a run, in the order of site and name.
func (c *Client) FleetTargets(ctx context.Context, name string, in FleetTargetQuery) (List[FleetTarget], error) {
	q := url.Values{}
	queryInt(q, "limit", int64(in.Limit))
	queryText(q, "cursor", in.Cursor)
	queryText(q, "state", string(in.State))
	if in.Run != 0 {
		q.Set("run", strconv.FormatInt(in.Run, 10))
	}
	var l List[FleetTarget]
	_, err := c.do(ctx, readCall(q, "fleets", name, "targets"), &l)
	return l, err
}
