package copies

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// outcome is what became of some changes.
type outcome struct {
	written, ended, moved, kept []fleet.CopyChange
	refused                     []refusal
	rivals                      int
}

func (o *outcome) add(part outcome) {
	o.written, o.ended = append(o.written, part.written...), append(o.ended, part.ended...)
	o.moved, o.kept = append(o.moved, part.moved...), append(o.kept, part.kept...)
	o.refused, o.rivals = append(o.refused, part.refused...), o.rivals+part.rivals
}

// take decides on a group of changes, and writes what follows.
func (a *applying) take(ctx context.Context, changes []fleet.CopyChange) error {
	a.group = outcome{}
	for _, read := range []func(context.Context, []fleet.CopyChange) error{a.readOwn, a.prove} {
		if err := read(ctx, changes); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := a.sort(ctx, c); err != nil {
			return err
		}
	}
	out := a.group
	a.all.add(out)
	a.noteLost(slices.Concat(out.written, out.ended))
	for _, write := range []func() error{
		func() error { return a.writeOwn(ctx, out.written) },
		func() error { return a.write(ctx, a.notOwn(out.written)) },
		func() error { return a.endOwn(ctx, out.ended) },
		func() error { return a.end(ctx, a.notOwn(out.ended)) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// sort decides what becomes of one change.
func (a *applying) sort(ctx context.Context, c fleet.CopyChange) error {
	held, out := a.held[c.Key], &a.group
	if !a.pending[c.Key] && slices.Contains(a.arrived, c.Key) {
		out.kept = append(out.kept, c)
		return nil
	}
	step, rule := decide.Copy(a.self, a.peer, c, held)
	if step == decide.CopyEnd && a.compared != nil {
		var err error
		if step, rule, err = a.remove(ctx, c); err != nil {
			return err
		}
	}
	if step == decide.CopyWrite {
		if whole, err := a.complete(ctx, c); err != nil || !whole {
			return err
		}
	}
	if (step == decide.CopyWrite || step == decide.CopyEnd) && decide.Loses(c, held) {
		a.lose(c, rule)
	}
	if rule == decide.RivalWon || rule == decide.RivalLost {
		out.rivals++
	}
	switch step {
	case decide.CopyWrite:
		out.written = append(out.written, c)
	case decide.CopyEnd:
		out.ended = append(out.ended, c)
	case decide.CopyMove:
		out.moved = append(out.moved, c)
	case decide.CopyRefuse:
		out.refused = append(out.refused, refusal{c, rule})
	case decide.CopyKeep:
		out.kept = append(out.kept, c)
		if _, copied := a.copies[c.Key]; !copied && held.Known && a.compared != nil {
			a.doubtful = append(a.doubtful, fleet.CopyAsked{Key: c.Key, Version: held.Version})
		}
	}
	return nil
}
