package link

import (
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// replicaJudge decides what a node's word makes of its replicas.
func replicaJudge() postgres.ReplicaJudge {
	return postgres.ReplicaJudge{Reported: decide.ReplicaReported, Unlisted: decide.UnlistedReplica, Cap: decide.DropCap}
}
