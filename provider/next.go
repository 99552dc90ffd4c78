package provider

import (
	"errors"
	"fmt"
	"time"
)

// ending is how one attempt at a connection ended.
type ending struct {
	err   error
	lived bool // it was active: a heartbeat was answered (C42)
	// unheard: it registered and got no answer. The region may still store that registration, and replace a later
	// one with it.
	unheard bool
	late    bool // such a registration may have replaced it
}

// lateRegister is how long after an unanswered attempt its registration may take effect: the region gives up
// storing it after 5 s.
const lateRegister = 15 * time.Second

// step is what follows: Run returns done, or continues after a pause.
type step struct {
	stop     bool
	done     error
	failures int // in a row, from now on
	pause    time.Duration
}

// next decides what follows an ending; the first matching rule wins.
func (o Options) next(end ending, failures int, chance float64) step {
	if end.lived {
		failures = 0
	}
	var (
		again   *registerAgainError
		refused *RefusedError
		drained *DrainedError
	)
	switch {
	case errors.Is(end.err, errClosed):
		return step{stop: true}
	case errors.As(end.err, &refused), errors.Is(end.err, ErrReplaced) && !end.late:
		return step{stop: true, done: end.err}
	case errors.As(end.err, &drained):
		if !o.Rejoin {
			return step{stop: true, done: end.err}
		}
		return step{pause: o.Backoff.pause(1, chance)}
	case end.lived && errors.As(end.err, &again):
		// Soon, but not all providers that a server forgot in the same moment.
		return step{pause: time.Duration(chance * float64(o.Backoff.Initial) / 2)}
	case end.lived:
		return step{pause: o.Backoff.pause(1, chance)}
	case o.MaxReconnectAttempts > 0 && failures+1 >= o.MaxReconnectAttempts:
		return step{stop: true, done: fmt.Errorf("%w: %d attempts in a row have failed: %w", ErrUnreachable, failures+1, end.err)}
	}
	return step{failures: failures + 1, pause: o.Backoff.pause(failures+1, chance)}
}
