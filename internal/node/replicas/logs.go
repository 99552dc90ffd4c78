package replicas

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// LogPiece is a part of a replica's output, at most 64 KiB.
type LogPiece struct {
	Replica fleet.ReplicaID `json:"replica"`
	Offset  int64           `json:"offset"`
	Data    []byte          `json:"data"` // base64 in JSON
	Skipped int64           `json:"skipped"`
}

// maxPiece bounds one request, piecesPerRound what one replica sends in a round, so that one with much output
// leaves room for the others.
const (
	maxPiece       = 64 << 10
	piecesPerRound = 8
)

// shipper is the driver whose loop sends the output of a replica: its own, if it has one.
func (k *Keeper) shipper(r known) fleet.Driver {
	if _, has := k.opt.Drivers[r.Driver]; has {
		return r.Driver
	}
	return fleet.DriverProcess
}

// shipLogs sends the output of one driver's replicas, from the last offset, and removes replicas that ended for
// good once all their output was sent.
func (k *Keeper) shipLogs(ctx context.Context, name fleet.Driver) error {
	if err := k.enrolled(ctx); err != nil {
		return err
	}
	every := time.NewTicker(k.opt.LogEvery)
	defer every.Stop()
	for failed := false; ; {
		err := k.shipRound(ctx, name)
		if err != nil && !failed && ctx.Err() == nil {
			k.opt.Log.Warn("send output of replicas, retrying", "err", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		case <-k.ship[name]:
		}
	}
}

func (k *Keeper) shipRound(ctx context.Context, name fleet.Driver) error {
	k.mu.Lock()
	var ids []fleet.ReplicaID
	for _, id := range slices.Sorted(maps.Keys(k.replicas)) {
		// The region stores no output of replicas that it does not know: it stays here until an operator decides.
		if w := k.replicas[id]; k.shipper(w.known) == name && !w.unlisted {
			ids = append(ids, id)
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, id := range ids {
		err := k.shipOne(ctx, name, id)
		errs = append(errs, err)
		if fleet.KindOf(err) == fleet.Communication {
			break // the region is unreachable: the others would fail too
		}
	}
	return errors.Join(errs...)
}

// shipOne sends part of the new output of one replica. A replica that ended for good is removed once all of it
// is sent, or the region does not want it. If its driver became known only now, another driver's round sends
// it.
func (k *Keeper) shipOne(ctx context.Context, name fleet.Driver, id fleet.ReplicaID) error {
	k.mu.Lock()
	w, has := k.replicas[id]
	if !has || k.shipper(w.known) != name {
		k.mu.Unlock()
		return nil
	}
	driver, gone := w.driver(w.known), w.cleared
	k.mu.Unlock()
	more := false
	var err error
	for range piecesPerRound {
		if driver == nil {
			break
		}
		if more, err = w.shipPiece(ctx, driver); err != nil || !more {
			break
		}
	}
	if err != nil && (fleet.KindOf(err).Retryable() || !gone) {
		return err
	}
	if gone && (!more || err != nil) {
		return errors.Join(err, k.clear(ctx, id))
	}
	return nil
}

// shipPiece sends the next piece, and records the offset only then: a piece may arrive twice under the same
// offset, but none is skipped.
func (w *worker) shipPiece(ctx context.Context, driver Driver) (more bool, err error) {
	k := w.keeper
	if !w.located {
		if w.sent, err = k.opt.Store.ReplicaLogOffset(ctx, w.id); err != nil {
			return false, err
		}
		w.located = true
	}
	out, err := driver.Output(ctx, w.id, w.sent)
	if err != nil || len(out.Data) == 0 {
		return false, err
	}
	data := out.Data[:min(len(out.Data), maxPiece)]
	if err := k.opt.Region.ReplicaLog(ctx, LogPiece{Replica: w.id, Offset: out.Offset, Data: data, Skipped: out.Skipped}); err != nil {
		return false, err
	}
	w.sent = out.Offset + int64(len(data))
	return true, k.opt.Store.SetReplicaLogOffset(ctx, w.id, w.sent)
}
