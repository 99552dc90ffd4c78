package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// operationRoom is what an operation has beyond its replicas: an image is pulled, entities are busy.
	operationRoom = prepareLimit + stuckLimit
	// longestOperation bounds how long anybody waits; what was asked for goes on.
	longestOperation = 72 * time.Hour
)

// OperationLimit is how long an operation on a deployment may take. Replicas are made and ended
// together, and replaced one by one, each of which may take its whole start-up.
func OperationLimit(t fleet.OperationTerms) time.Duration {
	if t.Kind == fleet.OperationDestroy {
		return operationRoom + t.Stop
	}
	one := t.Startup + t.Check + t.Stop
	return min(operationRoom+time.Duration(1+t.Replace)*one, longestOperation)
}
