package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// alones bounds how many pieces are carried out alone at once.
const alones = 8

// piece is one of many deliveries that travel together. It is done when it was applied, refused or failed;
// until then the next stage handles it.
type piece struct {
	cmd fleet.RefreshDeploymentCommand
	run []byte // the run section; verified once decided

	step  step
	data  []byte          // the body, if the stream brought it
	body  *sqlite.Staging // data, verified
	alone bool            // it needs Apply: something to start, stop or wait for

	done   bool
	booked bool // counted by Apply
	resp   fleet.DeploymentStatusResponse
	staged bool
	err    error
}

func (p *piece) fail(err error) { p.done, p.err = true, err }

func (p *piece) want() fleet.Content { return p.cmd.Revision.Content }

func (p *piece) deletes() bool { return p.cmd.Revision.Action == fleet.ActionDelete }

// bulk carries out many deliveries under one right, each of another name: bodies in one stream, slots in one
// transaction. Each succeeds or fails on its own (N98).
type bulk struct {
	*Applier
	right  sqlite.Right
	stage  bool // fetch and keep only (N100)
	pieces []*piece
	// bodies passes on the bodies that it can get, and removes them from want.
	bodies   func(ctx context.Context, want map[fleet.Hash]int64, take func(fleet.Hash, []byte)) (wire int64, err error)
	progress Progress

	wireMu sync.Mutex
	wire   int64
}

// carry finishes every piece. An error applies to all pieces that are not done.
func (b *bulk) carry(ctx context.Context) error {
	if err := b.decide(ctx); err != nil {
		return err
	}
	b.opt.Failpoint("before_fetch")
	lacking, err := b.lacking(ctx)
	if err != nil {
		return err
	}
	for _, round := range b.rounds(lacking) {
		b.fetch(ctx, round, lacking)
		b.opt.Failpoint("after_fetch")
		b.commit(ctx, round)
		for _, p := range round {
			p.data, p.body = nil, nil
		}
	}
	b.apart(ctx)
	for _, p := range b.pieces {
		b.book(p)
	}
	poke.Once(b.garbage)
	return ctx.Err()
}

// book counts how a piece ended, once.
func (b *bulk) book(p *piece) {
	switch {
	case p.booked:
	case p.err != nil:
		_ = b.count(p.cmd, p.err) // it returns the same error
	case !p.staged:
		b.counters.outcome(p.resp.Already).Add(1)
	}
}

// open gives the pieces that are not done.
func (b *bulk) open() []*piece {
	var open []*piece
	for _, p := range b.pieces {
		if !p.done {
			open = append(open, p)
		}
	}
	return open
}

// decide refuses before the fetch what can be refused.
func (b *bulk) decide(ctx context.Context) error {
	for _, p := range b.open() {
		if err := b.checkFor(p.cmd); err != nil {
			p.fail(err)
		}
	}
	open := b.open()
	held, err := b.opt.Store.InstancesOf(ctx, namesOf(open))
	if err != nil {
		return err
	}
	for _, p := range open {
		if attemptOf(p.cmd).Right != b.right { // the region moved on between two tickets
			p.alone = true
			continue
		}
		if err := b.verdict(ctx, p, held[p.cmd.Instance]); err != nil {
			p.fail(err)
			continue
		}
		if err := b.takeRun(p, held[p.cmd.Instance]); err != nil {
			if fleet.KindOf(err) == fleet.HashMismatch {
				b.counters.HashMismatch.Add(1)
			}
			p.fail(err)
		}
	}
	return nil
}

func namesOf(pieces []*piece) []fleet.InstanceName {
	names := make([]fleet.InstanceName, len(pieces))
	for i, p := range pieces {
		names[i] = p.cmd.Instance
	}
	return names
}

// verdict decides about a piece in the current state.
func (b *bulk) verdict(ctx context.Context, p *piece, held sqlite.Instance) error {
	meta, err := b.opt.Store.Meta(ctx)
	if err != nil {
		return err
	}
	v, err := b.judge(p.cmd, held, meta)
	if err == nil && b.right != meta.Right {
		err = stale(audit.StaleEpoch, "the node is %s at epoch %d", meta.Role, meta.Epoch)
	}
	p.step = v.Step
	return err
}

// takeRun verifies the run section that came with a piece, or uses a stored one. Otherwise Apply fetches it.
func (b *bulk) takeRun(p *piece, held sqlite.Instance) error {
	want := p.cmd.Revision.RunHash
	if want == "" {
		p.run = nil
		return nil
	}
	if len(p.run) == 0 {
		p.run = heldRun(held, want)
		p.alone = p.run == nil && !b.stage
		return nil
	}
	sum := sha256.Sum256(p.run)
	if got := fleet.Hash(hex.EncodeToString(sum[:])); got != want {
		return fleet.Errorf(fleet.HashMismatch, "the run section has hash %s; expected %s", got, want)
	}
	_, err := parseRun(p.run)
	return err
}

// lacking gives the bodies that must be fetched in the stream, with their sizes.
func (b *bulk) lacking(ctx context.Context) (map[fleet.Hash]int64, error) {
	hashes := make([]fleet.Hash, 0, len(b.pieces))
	for _, p := range b.open() {
		if !p.deletes() {
			hashes = append(hashes, p.want().Hash)
		}
	}
	there, err := b.opt.Store.CompleteContents(ctx, hashes)
	if err != nil {
		return nil, err
	}
	lacking := map[fleet.Hash]int64{}
	for _, p := range b.open() {
		size, is := there[p.want().Hash]
		switch {
		case p.deletes():
		case is && size != p.want().Size, differs(lacking, p.want()):
			p.fail(fleet.Errorf(fleet.HashMismatch, "content %s does not have %d bytes", p.want().Hash, p.want().Size))
		case is:
		case p.want().Size > fleet.MaxBatchBody:
			p.alone = true
		default:
			lacking[p.want().Hash] = p.want().Size
		}
	}
	return lacking, nil
}

func differs(sizes map[fleet.Hash]int64, c fleet.Content) bool {
	size, is := sizes[c.Hash]
	return is && size != c.Size
}

// rounds splits the open pieces so that one round holds a limited amount of memory. Pieces with the same body
// are in the same round.
func (b *bulk) rounds(lacking map[fleet.Hash]int64) [][]*piece {
	var all [][]*piece
	var bytes int64
	round := map[fleet.Hash]int{}
	for _, p := range b.open() {
		size := lacking[p.want().Hash]
		at, shares := round[p.want().Hash]
		switch {
		case size > 0 && shares:
			all[at] = append(all[at], p)
			continue
		case len(all) == 0, bytes+size > fleet.MaxBatchBytes:
			all, bytes = append(all, nil), 0
		}
		bytes += size
		round[p.want().Hash] = len(all) - 1
		all[len(all)-1] = append(all[len(all)-1], p)
	}
	return all
}

// fetch gets the bodies of a round. A missing one fails the pieces that need it.
func (b *bulk) fetch(ctx context.Context, round []*piece, lacking map[fleet.Hash]int64) {
	want, need := map[fleet.Hash]int64{}, map[fleet.Hash][]*piece{}
	for _, p := range round {
		if size, is := lacking[p.want().Hash]; is && !p.deletes() {
			want[p.want().Hash], need[p.want().Hash] = size, append(need[p.want().Hash], p)
		}
	}
	if len(want) == 0 {
		return
	}
	all, came := len(want), 0
	wire, err := b.bodies(ctx, want, func(hash fleet.Hash, data []byte) {
		came++
		b.progress(PhaseFetching, int64(came), int64(all))
		b.arrived(need[hash], data)
	})
	b.wire += wire
	if err == nil {
		err = fleet.Errorf(fleet.NotFound, "the region did not send the body")
	}
	for hash := range want {
		for _, p := range need[hash] {
			p.fail(err)
		}
	}
}

// arrived verifies a body for the pieces that need it (N94).
func (b *bulk) arrived(need []*piece, data []byte) {
	body, err := sqlite.Whole(need[0].want(), data)
	if err != nil {
		b.counters.HashMismatch.Add(1)
	}
	for i, p := range need {
		if err != nil {
			p.fail(err)
			continue
		}
		p.data, p.body = data, body
		if i == 0 { // the others found it stored
			p.resp.Fetched = int64(len(data))
		}
	}
}

// apart carries out alone, several at a time, what cannot be done together. Their bodies from the stream are in
// the store by now.
func (b *bulk) apart(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(alones)
	for _, p := range b.open() {
		group.Go(func() error {
			fetched := p.resp.Fetched
			if b.stage {
				p.resp.Fetched, p.err = b.keep(ctx, p)
				p.staged = p.err == nil
			} else {
				p.resp, p.err = b.applyWith(ctx, p.cmd, p.run, b.progress)
				p.booked = true
			}
			b.wireMu.Lock()
			b.wire += p.resp.Fetched
			b.wireMu.Unlock()
			p.resp.Fetched += fetched
			p.done = true
			return nil
		})
	}
	_ = group.Wait() // each piece has its own error
}

// keep fetches a body that is too large for the stream, for a later switch.
func (b *bulk) keep(ctx context.Context, p *piece) (int64, error) {
	if err := b.opt.Store.SetAside(ctx, attemptOf(p.cmd)); err != nil {
		return 0, err
	}
	unlock, err := b.Applier.bodies.lock(ctx, string(p.want().Hash))
	if err != nil {
		return 0, err
	}
	defer unlock()
	_, fetched, err := b.obtain(ctx, p.cmd, b.progress)
	return fetched, err
}
