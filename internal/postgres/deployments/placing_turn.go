package deployments

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// placingAtOnce is how many visits of one server choose nodes at a time: one that does, and one that is
// ready to. The others wait without a connection.
const placingAtOnce = 2

// errNoTurn restarts a visit once it is its turn to choose nodes.
var errNoTurn = errors.New("others choose nodes now")

// placingTurn is a visit's turn among those of this server that choose nodes.
type placingTurn struct {
	queue chan struct{}
	mine  bool
}

// take says whether it is the visit's turn now.
func (t *placingTurn) take() bool {
	if t.mine {
		return true
	}
	select {
	case t.queue <- struct{}{}:
		t.mine = true
	default:
	}
	return t.mine
}

// wait waits for the turn, outside of any transaction.
func (t *placingTurn) wait(ctx context.Context) error {
	select {
	case t.queue <- struct{}{}:
		t.mine = true
		return nil
	case <-ctx.Done():
		return &fleet.Error{Kind: fleet.Unavailable, Message: "many deployments are placed at once", Err: ctx.Err()}
	}
}

func (t *placingTurn) leave() {
	if t.mine {
		<-t.queue
		t.mine = false
	}
}
