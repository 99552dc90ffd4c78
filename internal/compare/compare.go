package compare

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// copyStore has the copies, and how far each comparison is.
type copyStore interface {
	// BeginSync gives a turn that is done when no comparison is wanted, and one that waits with the reason.
	BeginSync(ctx context.Context, v fleet.SyncVisit) (fleet.SyncPlace, fleet.SyncTurn, error)
	// SplitSync has the comparison begin again with smaller ranges.
	SplitSync(ctx context.Context, at fleet.SyncPlace, bits int, objects int64) error
	FinishSync(ctx context.Context, peer fleet.RegionName) (fleet.SyncTurn, error)
	// ListUndone lists what a restore of the peer undid from an event of the era of a place on.
	ListUndone(ctx context.Context, at fleet.SyncPlace, from int64) error
	LeaveSync(ctx context.Context, peer fleet.RegionName) error
	// NoteSync has the operations say why they wait, with "" that they do not.
	NoteSync(ctx context.Context, peer fleet.RegionName, why string) error
	CountHeld(ctx context.Context, peer fleet.RegionName) (int64, error)
	AskedFirst(ctx context.Context, peer fleet.RegionName) ([]fleet.CopyAsked, error)
	// AskedNext counts on what the peer answered to the first questions.
	AskedNext(ctx context.Context, peer fleet.RegionName) ([]fleet.CopyAsked, error)
	HeldRanges(ctx context.Context, peer fleet.RegionName, in fleet.UIDRange, bits int) ([]fleet.RangeSum, error)
	HeldSums(ctx context.Context, peer fleet.RegionName, in []fleet.UIDRange) ([]fleet.CopySum, error)
	// ApplyCompared is stale if the comparison is elsewhere by now.
	ApplyCompared(ctx context.Context, in fleet.ComparedSet) (fleet.ComparedApplied, error)
}

// Peers are the other regions.
type Peers interface {
	// Allowed and Post return not_found for a region that is not a peer, or is disabled.
	Allowed(ctx context.Context, peer fleet.RegionName) error
	// Post sends a question to a peer.
	Post(ctx context.Context, peer fleet.RegionName, path string, question []byte) (io.ReadCloser, error)
}

// Comparer compares the copies of this region with their owners.
type Comparer struct {
	Store copyStore
	Peers Peers
	// Rival hears of objects that two regions claimed in one epoch; it may be nil.
	Rival func(peer fleet.RegionName, objects int)
}

// Page compares the next ranges, and says how far the comparison is. All that a page did is stored with its end; one that is
// killed is repeated.
func (c *Comparer) Page(ctx context.Context, v fleet.SyncVisit) (fleet.SyncTurn, error) {
	at, turn, err := c.Store.BeginSync(ctx, v)
	if err != nil || turn.Done {
		return turn, err
	}
	p := &page{Comparer: c, at: at}
	if err = c.Peers.Allowed(ctx, v.Peer); err == nil && turn.Waits == "" {
		err = p.run(ctx)
	}
	switch kind := fleet.KindOf(err); {
	case kind == fleet.NotFound:
		return fleet.SyncTurn{Left: true, Done: true}, c.Store.LeaveSync(ctx, v.Peer)
	case err == nil:
	case kind == fleet.Unavailable || kind == fleet.Communication:
		turn.Waits = err.Error()
	default:
		return turn, err
	}
	if err := c.Store.NoteSync(ctx, v.Peer, turn.Waits); err != nil || turn.Waits != "" {
		return turn, err
	}
	turn.At, turn.Ranges = p.to, p.at.Ranges()
	turn.Add(p.counts)
	if p.to == p.at.Ranges() {
		return c.Store.FinishSync(ctx, v.Peer)
	}
	return turn, nil
}

// page is some ranges under way.
type page struct {
	*Comparer
	at fleet.SyncPlace
	to int64

	held    map[fleet.CopyKey]fleet.CopyVersion // before the owner was asked
	fetched map[fleet.CopyKey]bool
	doubt   []fleet.CopyAsked
	set     []fleet.CopyChange
	bytes   int
	counts  fleet.SyncCounts // of all sets
	next    fleet.SyncCounts // that the last set stores
}

const (
	applyAtOnce = 500
	applyBytes  = 8 << 20
)

func (p *page) run(ctx context.Context) error {
	if p.at.At == 0 {
		if err := p.measure(ctx); err != nil {
			return err
		}
		if err := p.holders(ctx); err != nil {
			return err
		}
	}
	p.to = min(p.at.At+rangesAtOnce, p.at.Ranges())
	held, differ, err := p.compare(ctx)
	if err != nil {
		return err
	}
	if differ.Crowded {
		p.to = 0
		return p.Store.SplitSync(ctx, p.at, p.at.Bits+2, p.at.Objects)
	}
	p.next.Compared = max(held.all, differ.Objects)
	if len(differ.Ranges) > 0 {
		if err := p.repair(ctx, differ.Ranges); err != nil {
			return err
		}
	}
	return p.apply(ctx, p.to)
}

// holders brings the policies up to date, which explain what is removed, what waits for them, and what belongs to holders that the
// peer claimed.
func (p *page) holders(ctx context.Context) error {
	p.held, p.fetched = map[fleet.CopyKey]fleet.CopyVersion{}, map[fleet.CopyKey]bool{}
	for _, asked := range []func(context.Context, fleet.RegionName) ([]fleet.CopyAsked, error){p.Store.AskedFirst, p.Store.AskedNext} {
		all, err := asked(ctx, p.at.Peer)
		if err != nil {
			return err
		}
		for _, h := range all {
			p.held[h.Key] = h.Version
		}
		if err := p.askNamed(ctx, all, true); err != nil {
			return err
		}
		if err := p.apply(ctx, p.at.At); err != nil {
			return err
		}
	}
	return nil
}

// measure chooses the size of ranges by the region that has more, unless that was done. It asks again all the same: the owner may have
// been restored since.
func (p *page) measure(ctx context.Context) error {
	var all differing
	if err := p.sums(ctx, sums{Format: format}, &all); err != nil || p.at.Bits != 0 {
		return err
	}
	held, err := p.Store.CountHeld(ctx, p.at.Peer)
	if err != nil {
		return err
	}
	p.at.Objects = max(held, all.Objects)
	p.at.Bits = bitsFor(p.at.Objects)
	return p.Store.SplitSync(ctx, p.at, p.at.Bits, p.at.Objects)
}

// compare reads what is here, and then asks the owner what differs.
func (p *page) compare(ctx context.Context) (held whole, differ differing, err error) {
	n := p.to - p.at.At
	all, err := p.Store.HeldRanges(ctx, p.at.Peer, uids(p.at.Bits, p.at.At, n), p.at.Bits)
	if err != nil {
		return held, differ, err
	}
	held = wholeOf(all, p.at.At, n)
	return held, differ, p.sums(ctx, sums{Format: format, Bits: p.at.Bits, First: p.at.At, Sums: held.sums}, &differ)
}

// sums asks for sums, and lists what the owner says that its restore undid: what is applied then replaces it.
func (p *page) sums(ctx context.Context, question sums, answer *differing) error {
	question.Place = p.at.Position
	err := p.ask(ctx, PathSums, question, answer)
	if err != nil || answer.UndoneFrom == 0 {
		return err
	}
	return p.Store.ListUndone(ctx, p.at, answer.UndoneFrom)
}

// heldIn reads what is here in the ranges that the owner says differ, before it is asked for anything in them.
func (p *page) heldIn(ctx context.Context, ranges []sumsOf) ([]fleet.CopySum, error) {
	var in []fleet.UIDRange
	for _, r := range ranges {
		if r.Range < p.at.At || r.Range >= p.to || len(r.Sums)%shortSum != 0 || len(in) == rangesAtOnce {
			return nil, fleet.Errorf(fleet.Communication, "region %s answers about other ranges than it was asked for", p.at.Peer)
		}
		in = append(in, uids(p.at.Bits, r.Range, 1))
	}
	return p.Store.HeldSums(ctx, p.at.Peer, in)
}

// repair fetches what is not here as the owner has it, and asks about what the owner does not have as it is here.
func (p *page) repair(ctx context.Context, ranges []sumsOf) error {
	held, err := p.heldIn(ctx, ranges)
	if err != nil {
		return err
	}
	p.held, p.fetched = map[fleet.CopyKey]fleet.CopyVersion{}, map[fleet.CopyKey]bool{}
	here := map[[shortSum]byte]bool{}
	for _, s := range held {
		p.held[s.Key] = s.Version
		here[[shortSum]byte(s.Sum)] = true
	}
	there := map[int64]map[[shortSum]byte]bool{} // of the ranges that differ
	want := wanted{Bits: p.at.Bits}
	for _, r := range ranges {
		there[r.Range] = map[[shortSum]byte]bool{}
		if missing := r.without(here, there[r.Range]); len(missing) > 0 {
			want.Ranges = append(want.Ranges, sumsOf{r.Range, missing})
			p.next.Differed += int64(len(missing) / shortSum)
		}
	}
	if len(want.Ranges) > 0 {
		if err := p.take(ctx, PathObjects, want, 0); err != nil {
			return err
		}
	}
	if err := p.askNamed(ctx, p.surplus(held, there), false); err != nil {
		return err
	}
	if err := p.apply(ctx, p.at.At); err != nil { // which tells what is in doubt
		return err
	}
	doubt := p.doubt
	for _, d := range doubt {
		p.held[d.Key] = d.Version
	}
	return p.askNamed(ctx, doubt, false)
}

// without gives the sums that are not here, and notes all of them.
func (r sumsOf) without(here, all map[[shortSum]byte]bool) (missing []byte) {
	for i := 0; i < len(r.Sums); i += shortSum {
		sum := [shortSum]byte(r.Sums[i:])
		all[sum] = true
		if !here[sum] {
			missing = append(missing, sum[:]...)
		}
	}
	return missing
}

// surplus are copies in ranges that differ that the owner has not like this, and did not send.
func (p *page) surplus(held []fleet.CopySum, there map[int64]map[[shortSum]byte]bool) (out []fleet.CopyAsked) {
	for _, s := range held {
		if in := there[rangeOf(s.UID, p.at.Bits)]; in != nil && !in[[shortSum]byte(s.Sum)] && !p.fetched[s.Key] {
			out = append(out, fleet.CopyAsked{Key: s.Key, Version: s.Version})
		}
	}
	p.next.Differed += int64(len(out))
	return out
}

// askNamed asks the owner by name, so that nothing is removed because it was missing in an answer (M33).
func (p *page) askNamed(ctx context.Context, all []fleet.CopyAsked, changed bool) error { //nolint:revive // what the answer leaves out, not what to do
	for len(all) > 0 {
		n := min(len(all), namedAtOnce)
		q, lines := named{Objects: make([]askedOf, n), Changed: changed}, n
		if changed {
			lines = 0
		}
		for i, a := range all[:n] {
			q.Objects[i] = askedFor(a)
		}
		if err := p.take(ctx, PathNamed, q, lines); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// apply writes what was answered, and moves the comparison to a range.
func (p *page) apply(ctx context.Context, to int64) error {
	if len(p.set) == 0 && to == p.at.At {
		return nil
	}
	set := fleet.ComparedSet{Place: p.at, Changes: p.set, To: to}
	if to != p.at.At { // a page that is repeated counts once
		set.Counts = p.next
	}
	done, err := p.Store.ApplyCompared(ctx, set)
	if err != nil {
		return err
	}
	p.counts.Add(done.SyncCounts)
	if done.Rivals > 0 && p.Rival != nil {
		p.Rival(p.at.Peer, done.Rivals)
	}
	p.doubt = append(p.doubt, done.Doubtful...)
	p.set, p.bytes = nil, 0
	return nil
}

const (
	maxAnswer = 1 << 20 // of sums, in bytes
	maxLine   = 16 << 20
)

func (p *page) post(ctx context.Context, path string, question any) (io.ReadCloser, error) {
	raw, err := json.Marshal(question)
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "write a question: %w", err)
	}
	return p.Peers.Post(ctx, p.at.Peer, path, raw)
}

// ask sends a question that one document answers.
func (p *page) ask(ctx context.Context, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	body, err := p.post(ctx, path, question)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(raw, answer)
	}
	if err != nil {
		return p.broken(err)
	}
	return nil
}

func (p *page) broken(err error) error {
	return fleet.Errorf(fleet.Communication, "read the answer of region %s: %w", p.at.Peer, err)
}

// take applies the lines of an answer, as many as there are to be (0 for any number). One that is cut off is read as far as
// it goes, and asked for again.
func (p *page) take(ctx context.Context, path string, question any, lines int) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	body, err := p.post(ctx, path, question)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	count := int64(0)
	for in.Scan() {
		var t reply
		if err := json.Unmarshal(bytes.TrimSpace(in.Bytes()), &t); err != nil {
			return p.broken(err)
		}
		if t.Type == api.WatchSnapshotSize {
			if t.Count != count || lines > 0 && count != int64(lines) {
				return fleet.Errorf(fleet.Communication, "region %s answers %d lines, and says %d", p.at.Peer, count, t.Count)
			}
			return nil
		}
		count++
		if err := p.line(ctx, t, len(in.Bytes())); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return p.broken(err)
	}
	return p.broken(io.ErrUnexpectedEOF)
}

func (p *page) line(ctx context.Context, t reply, size int) error {
	change, err := t.change(p.at.Peer)
	if err != nil {
		return p.broken(err)
	}
	if version, is := p.held[change.Key]; is {
		change.Seen = &version
	}
	p.fetched[change.Key] = true
	p.set, p.bytes = append(p.set, change), p.bytes+size
	if len(p.set) < applyAtOnce && p.bytes < applyBytes {
		return nil
	}
	return p.apply(ctx, p.at.At)
}
