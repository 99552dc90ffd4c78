package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// historyKept is how many lines of a deployment's history are kept at most.
const historyKept = 1000

// replicas removes ended ones, and what was measured of them.
func (c *collection) replicas(ctx context.Context) (err error) {
	c.removed, err = c.q.CollectReplicas(ctx, db.CollectReplicasParams{
		Keep: int64(c.keep.Newest), OlderSeconds: c.keep.Bodies.Seconds(), RecordSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows,
	})
	if err != nil {
		return err
	}
	n, err := c.q.CollectReplicaSamples(ctx, collectRows)
	c.more = c.removed == collectRows || n == collectRows
	c.removed += n
	return err
}

// deployments removes what is old of those that there are, and then those that have ended.
func (c *collection) deployments(ctx context.Context) error {
	for _, take := range []func() (int64, error){
		func() (int64, error) {
			return c.q.CollectDeploymentRevisions(ctx, db.CollectDeploymentRevisionsParams{
				Keep: int64(c.keep.Newest), OlderSeconds: c.keep.Bodies.Seconds(), MaxRows: collectRows,
			})
		},
		func() (int64, error) {
			return c.q.CollectDeploymentHistory(ctx, db.CollectDeploymentHistoryParams{
				OlderSeconds: c.keep.Operations.Seconds(), Most: historyKept, MaxRows: collectRows,
			})
		},
		func() (int64, error) {
			return c.q.CollectDeployments(ctx, db.CollectDeploymentsParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows})
		},
		func() (int64, error) {
			return c.q.CollectTombstones(ctx, db.CollectTombstonesParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows})
		},
		func() (int64, error) {
			return c.q.CollectOrphanReplicas(ctx, db.CollectOrphanReplicasParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows})
		},
		func() (int64, error) { return c.q.CollectNodeSets(ctx, collectRows) },
	} {
		n, err := take()
		if err != nil {
			return err
		}
		c.removed += n
		c.more = c.more || n == collectRows
	}
	return nil
}
