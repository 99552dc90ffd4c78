package copies

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// outcome is what became of some changes.
type outcome struct {
	written, ended, kept []fleet.CopyChange
	refused              []refusal
	rivals               int
}

// take decides on changes and writes what follows.
func (a *applying) take(ctx context.Context, changes []fleet.CopyChange) (out outcome, err error) {
	if err := a.read(ctx, changes); err != nil {
		return out, err
	}
	if err := a.readOwn(ctx, changes); err != nil {
		return out, err
	}
	if err := a.prove(ctx, changes); err != nil {
		return out, err
	}
	for _, c := range changes {
		step, rule := decide.Copy(a.self, a.in.Claim.Peer, c, a.held[c.Key])
		if rule == decide.RivalWon || rule == decide.RivalLost {
			out.rivals++
		}
		switch step {
		case decide.CopyWrite:
			out.written = append(out.written, c)
		case decide.CopyEnd:
			out.ended = append(out.ended, c)
		case decide.CopyRefuse:
			out.refused = append(out.refused, refusal{c, rule})
		case decide.CopyKeep:
			out.kept = append(out.kept, c)
		}
	}
	for _, write := range []func() error{
		func() error { return a.noteLost(ctx, append(slices.Clone(out.written), out.ended...)) },
		func() error { return a.writeOwn(ctx, out.written) },
		func() error { return a.write(ctx, a.notOwn(out.written)) },
		func() error { return a.endOwn(ctx, out.ended) },
		func() error { return a.end(ctx, a.notOwn(out.ended)) },
	} {
		if err := write(); err != nil {
			return out, err
		}
	}
	return out, nil
}
