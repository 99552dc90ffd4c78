package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// What one token may have open at once on one server (docs/limits.md).
const (
	maxEventStreams = 32
	maxWaits        = 512
	// vigilEvery is how often the tokens of what is open are checked; each check is one statement.
	vigilEvery = 500 * time.Millisecond
)

// vigil ends what stays open soon after its token ended, and bounds how much one token has open.
type vigil struct {
	store tokenStore
	what  string
	most  int

	mu   sync.Mutex
	open map[[32]byte]map[*openCall]struct{}
	stop chan struct{} // ends the loop; nil when nothing is open
}

// openCall is one call that stays open.
type openCall struct{ end context.CancelCauseFunc }

func newVigil(store tokenStore, what string, most int) *vigil {
	return &vigil{store: store, what: what, most: most, open: map[[32]byte]map[*openCall]struct{}{}}
}

// begin gives a call the context that it ends by: with the caller, or with the token.
func (v *vigil) begin(ctx context.Context, token [32]byte) (context.Context, func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.open[token]); n >= v.most {
		return nil, nil, fleet.Errorf(fleet.RateLimited, "this token has %d %s open on this server; the limit is %d", n, v.what, v.most).
			WithHint("close some of them, or use another token")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &openCall{cancel}
	if v.open[token] == nil {
		v.open[token] = map[*openCall]struct{}{}
	}
	v.open[token][w] = struct{}{}
	if v.stop == nil {
		v.stop = make(chan struct{})
		go v.keep(v.stop)
	}
	return ctx, func() { v.leave(token, w); cancel(nil) }, nil
}

func (v *vigil) leave(token [32]byte, w *openCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open[token], w)
	if len(v.open[token]) == 0 {
		delete(v.open, token)
	}
	if len(v.open) == 0 && v.stop != nil {
		close(v.stop)
		v.stop = nil
	}
}

// keep checks the tokens until nothing is open.
func (v *vigil) keep(stop <-chan struct{}) {
	tick := time.NewTicker(vigilEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			v.check()
		}
	}
}

// check ends what is open of tokens that have ended. A database that does not answer ends nothing:
// what is open reads from it too.
func (v *vigil) check() {
	v.mu.Lock()
	hashes := make([][]byte, 0, len(v.open))
	for token := range v.open {
		hashes = append(hashes, token[:])
	}
	v.mu.Unlock()
	if len(hashes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeLimit)
	defer cancel()
	valid, err := v.store.APITokensByHash(ctx, hashes)
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, hash := range hashes {
		if _, is := valid[string(hash)]; is {
			continue
		}
		for w := range v.open[[32]byte(hash)] {
			w.end(errTokenEnded)
		}
	}
}

var errTokenEnded = fleet.Errorf(fleet.Unauthenticated, "this token has expired or was revoked").WithHint("use another token")

// endedBy gives why a context ended, where that was the end of the token.
func endedBy(ctx context.Context) error {
	if cause := context.Cause(ctx); fleet.KindOf(cause) == fleet.Unauthenticated {
		return cause
	}
	return nil
}
