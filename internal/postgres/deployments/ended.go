package deployments

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// EndedDeployment is the record of a deployment that is declared no more.
type EndedDeployment struct {
	Name    fleet.DeploymentName
	UID     string
	Project fleet.ProjectName
	EndedAt time.Time
}

// ListEndedDeployments lists by name, after one ("" is the start), the records that are kept.
func (s *Store) ListEndedDeployments(ctx context.Context, project fleet.ProjectName, after string, limit int32) ([]EndedDeployment, error) {
	rows, err := s.Q.ListEndedDeployments(ctx, db.ListEndedDeploymentsParams{Project: string(project), After: after, MaxRows: limit})
	out := make([]EndedDeployment, len(rows))
	for i, r := range rows {
		out[i] = EndedDeployment{
			Name: fleet.DeploymentName(r.Name), UID: r.Uid, Project: fleet.ProjectName(r.Project), EndedAt: r.Since,
		}
	}
	return out, err
}
