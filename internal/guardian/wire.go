package guardian

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The operations of the socket: JSON lines, one answer to each request.
const (
	opStatus = "status"
	opStop   = "stop"
	opSignal = "signal"
	opLease  = "lease" // read the lease now
	opStart  = "start" // wait for the result of the start
)

// maxMessage bounds what either side reads of the other.
const maxMessage = 64 << 10

type request struct {
	Op           string  `json:"op"`
	GraceSeconds float64 `json:"graceSeconds,omitempty"` // 0: as in the spec
	Signal       string  `json:"signal,omitempty"`
	Labels       Labels  `json:"labels"`
}

// response is the answer to a request, and the guardian's one message on the ready pipe.
type response struct {
	Status Status     `json:"status"`
	Kind   fleet.Kind `json:"kind,omitempty"` // "" is success
	Reason string     `json:"reason,omitempty"`
}

func refusal(st Status, err error) response {
	var known *fleet.Error
	if errors.As(err, &known) {
		return response{Status: st, Kind: known.Kind, Reason: known.Message}
	}
	return response{Status: st, Kind: fleet.Internal, Reason: err.Error()}
}

func (r response) err() error {
	if r.Kind == "" {
		return nil
	}
	return fleet.Errorf(r.Kind, "%s", r.Reason)
}

func (r request) grace(spec Spec) time.Duration { return seconds(r.GraceSeconds, spec.stopGrace()) }
