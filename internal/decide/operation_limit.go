package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// operationRoom is what an operation gets beyond its replicas' time: to pull an image, and for busy entities.
	operationRoom = prepareLimit + stuckLimit
	// longestOperation limits how long an operation waits; the change itself continues.
	longestOperation = 72 * time.Hour
)

// OperationLimit is how long an operation on a deployment may take. Replicas are created and ended together, but
// replaced one by one, and each replacement may take its whole start-up. The intervals of a canary come on top.
func OperationLimit(t fleet.OperationTerms) time.Duration {
	if t.Kind == fleet.OperationDestroy {
		return operationRoom + t.Stop
	}
	one := t.Startup + t.Check + t.Stop + t.MinHealthy
	return min(operationRoom+time.Duration(1+t.Replace)*one, longestOperation) + t.Intervals
}
