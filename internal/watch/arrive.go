package watch

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// partStore keeps changes that wait, and what they are composed of.
type partStore interface {
	DueCopies(ctx context.Context, peer fleet.RegionName, limit int32) ([]fleet.CopyChange, error)
	PutOffCopy(ctx context.Context, c fleet.CopyChange, problem string, most time.Duration) error
	DropCopy(ctx context.Context, peer fleet.RegionName, c fleet.CopyChange) error
	MissingParts(ctx context.Context, name fleet.TemplateName, spec fleet.TemplateSpec) (fleet.TemplateParts, error)
	// KeepGeneration is a conflict while parts of the generation are missing.
	KeepGeneration(ctx context.Context, pin fleet.TemplatePin, raw json.RawMessage) error
	// BodyReceived is how much is here of a body on its way, AppendBody adds a part, FinishBody checks and keeps it.
	BodyReceived(ctx context.Context, h fleet.Hash) (int64, error)
	AppendBody(ctx context.Context, h fleet.Hash, offset int64, r io.Reader, last bool) error
	FinishBody(ctx context.Context, h fleet.Hash) error
	RestartBody(ctx context.Context, h fleet.Hash) error
}

// Parts are what peers serve of templates. Both return not_found for what the template, as it is now, is not composed of.
type Parts interface {
	// Generation is one that a template merges. The peer knows the pin by its own name for it.
	Generation(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, pin fleet.TemplatePin) (json.RawMessage, error)
	// Body is a part of a body, from an offset on and of at most a length.
	Body(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, h fleet.Hash, offset, length int64) (io.ReadCloser, error)
}

const (
	// arriveAtOnce is how many changes are completed at the same time.
	arriveAtOnce = 3
	// partBytes is the most that one request asks of a body, and partLimit the time that it may take.
	partBytes = 4 << 20
	partLimit = 2 * time.Minute
	// maxGenerations bounds what one template may be composed of, maxDepth in how many steps.
	maxGenerations = 1024
	maxDepth       = 256
	// arriveRetry is the longest pause before a change is tried again.
	arriveRetry = time.Minute
)

// arrive completes what waits, until the turn is over. A body that was cut continues after its last whole chunk.
func (f *following) arrive(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(f.Beat)
	defer tick.Stop()
	for {
		due, err := f.Waiting.DueCopies(ctx, f.claim.Peer, arriveAtOnce)
		if err != nil && ctx.Err() == nil {
			f.Log.Warn("read what waits of a peer", "peer", f.claim.Peer, "err", err)
		}
		var group errgroup.Group
		for _, c := range due {
			group.Go(func() error { return f.completed(ctx, c) })
		}
		err = group.Wait()
		if fleet.KindOf(err) == fleet.Stale {
			end(err)
			return
		}
		if err == nil && len(due) == arriveAtOnce {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-f.waits:
		case <-tick.C:
		}
	}
}

// completed fetches what a change is composed of, and applies it as if it came now. A change that cannot be completed is put
// off, which is no error; the error is stale if another turn has replaced this one.
func (f *following) completed(ctx context.Context, c fleet.CopyChange) error {
	a := &arrival{following: f, change: c, left: maxGenerations}
	err := a.run(ctx)
	switch kind := fleet.KindOf(err); {
	case err == nil || ctx.Err() != nil:
		return nil
	case kind == fleet.Stale:
		return err
	case a.replaced: // a newer state follows
		f.Log.Info("a copy that waits is replaced at its owner", "copy", c.Key, "err", err)
		err = f.Waiting.DropCopy(ctx, f.claim.Peer, c)
	default:
		f.Log.Info("a copy waits for what it is composed of", "copy", c.Key, "err", err)
		err = f.Waiting.PutOffCopy(ctx, c, err.Error(), arriveRetry)
	}
	if err != nil && ctx.Err() == nil {
		f.Log.Warn("put off what waits", "copy", c.Key, "err", err)
	}
	return err
}

// arrival is one change that is completed.
type arrival struct {
	*following
	change fleet.CopyChange
	left   int // generations
	// under are the generations that the one being fetched is a part of.
	under []fleet.TemplatePin
	// replaced: the peer's template, as it is now, is not composed of what this state names.
	replaced bool
}

func (a *arrival) run(ctx context.Context) error {
	name := fleet.CopiedTemplate(a.change.Key.Region, a.change.Key.Name)
	if err := a.fill(ctx, name, a.change.Object.Spec); err != nil {
		return err
	}
	done, err := a.Store.ApplyCopies(ctx, fleet.CopySet{Claim: a.claim, Changes: []fleet.CopyChange{a.change}, Arrived: true})
	if err != nil {
		return err
	}
	a.counted(done)
	if done.Waiting > 0 { // a part was collected in between
		return fleet.Errorf(fleet.Conflict, "parts of template %s are not here", name)
	}
	if done.Written == 0 { // what is here is newer, or it was set aside
		return a.Waiting.DropCopy(ctx, a.claim.Peer, a.change)
	}
	return nil
}

// fill fetches what a generation is composed of: each part is stored after its own parts.
func (a *arrival) fill(ctx context.Context, name fleet.TemplateName, raw json.RawMessage) error {
	spec, err := fleet.ReadCopiedTemplate(name, raw)
	if err != nil {
		return err
	}
	missing, err := a.Waiting.MissingParts(ctx, name, spec)
	if err != nil {
		return err
	}
	if missing.Body != nil {
		if err := a.body(ctx, *missing.Body); err != nil {
			return err
		}
	}
	for _, pin := range missing.Pins {
		if slices.Contains(a.under, pin) {
			return fleet.Errorf(fleet.Invalid, "generation %d of template %s is composed of itself", pin.Generation, pin.Name)
		}
		if a.left--; a.left < 0 || len(a.under) == maxDepth {
			return fleet.Errorf(fleet.Invalid, "template %s is composed of more than %d generations, or in more than %d steps", a.change.Key.Name, maxGenerations, maxDepth)
		}
		raw, err := a.Parts.Generation(ctx, a.claim.Peer, a.change.Key, fleet.TemplatePin{Name: a.there(pin.Name), Generation: pin.Generation})
		if err != nil {
			return a.refused(err)
		}
		a.under = append(a.under, pin)
		if err := a.fill(ctx, pin.Name, raw); err != nil {
			return err
		}
		a.under = a.under[:len(a.under)-1]
		if err := a.Waiting.KeepGeneration(ctx, pin, raw); err != nil {
			return err
		}
	}
	return nil
}

// refused notes what the peer does not have any more.
func (a *arrival) refused(err error) error {
	a.replaced = fleet.KindOf(err) == fleet.NotFound
	return err
}

// there is the peer's own name for a template.
func (a *arrival) there(name fleet.TemplateName) fleet.TemplateName {
	if _, _, copied := name.Copy(); !copied { // of this region
		return fleet.CopiedTemplate(a.change.Key.Region, string(name))
	}
	return name.In(a.claim.Peer)
}

// body fetches a body, on from what is here of it.
func (a *arrival) body(ctx context.Context, c fleet.Content) error {
	if c.Size > a.MaxBody {
		return fleet.Errorf(fleet.TooLarge, "a body of template %s has %d bytes; the limit is %d", a.change.Key.Name, c.Size, a.MaxBody)
	}
	for {
		offset, err := a.Waiting.BodyReceived(ctx, c.Hash)
		if err != nil {
			return err
		}
		if offset > c.Size { // of another size under the same hash, which a peer made up
			if err := a.Waiting.RestartBody(ctx, c.Hash); err != nil {
				return err
			}
			continue
		}
		if offset == c.Size {
			return a.Waiting.FinishBody(ctx, c.Hash)
		}
		if err := a.part(ctx, c, offset); err != nil {
			return err
		}
	}
}

// part fetches the next part of a body. Whole chunks that come before a cut are kept.
func (a *arrival) part(ctx context.Context, c fleet.Content, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, partLimit)
	defer cancel()
	length := min(partBytes, c.Size-offset)
	from, err := a.Parts.Body(ctx, a.claim.Peer, a.change.Key, c.Hash, offset, length)
	if err != nil {
		return a.refused(err)
	}
	defer func() { _ = from.Close() }() // it was read
	whole := &exactly{from: from, left: length}
	err = a.Waiting.AppendBody(ctx, c.Hash, offset, whole, offset+length == c.Size)
	if whole.err != nil {
		return whole.err
	}
	return err
}

// exactly reads a number of bytes: fewer, and more, are an error.
type exactly struct {
	from io.Reader
	left int64
	err  error
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if e.left == 0 {
		if n, _ := io.ReadFull(e.from, make([]byte, 1)); n > 0 {
			e.err = fleet.Errorf(fleet.Invalid, "the peer sent more of a body than it has")
			return 0, e.err
		}
		return 0, io.EOF
	}
	n, err := e.from.Read(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); err != nil && e.left > 0 {
		e.err = fleet.Errorf(fleet.Unavailable, "the peer cut a body: %s", err) // not an end of the bytes, whatever it wraps
		return n, e.err
	}
	return n, nil
}
