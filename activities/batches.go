package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// batchMaker writes the next changes of a fleet change at one site, and claims a delivery
// for each, in one transaction. The same id again is answered as before.
type batchMaker interface {
	// Next prepares the notify of the active with the batch, where that can be told; nil else,
	// and when the batch was made before.
	Next(ctx context.Context, in NextBatch, tokenHash []byte) (BatchMade, *fleet.BatchNotify, error)
}

// gatherer claims a delivery for each instance of a site that waits and may travel in a
// batch, takes over its operations, and wakes those that may not. The same id again is
// answered as before.
type gatherer interface {
	Gather(ctx context.Context, in GatherBatch) (BatchMade, error)
}

// batchStore takes a batch from step to step; each may be taken twice.
type batchStore interface {
	// PrepareBatch gives the notify of one node, nil when the node has nothing to fetch, or did not enrol in time.
	PrepareBatch(ctx context.Context, in fleet.BatchPrepare) (*fleet.BatchNotify, error)
	MissBatch(ctx context.Context, in fleet.BatchMiss) error
	EndBatch(ctx context.Context, id fleet.BatchID) (fleet.BatchEnded, error)
}

// Batches is what the delivery to a site does at the store, as local activities.
type Batches struct {
	Maker    batchMaker
	Gatherer gatherer
	Store    batchStore
	Tokens   TokenMaker
	Signer   Signer
	// Nodes wakes those that are about to be told; nil where none idles.
	Nodes nodeWaker
	// Doors is told when a batch has ended that served what people asked for.
	Doors doorTeller
	Log   *slog.Logger
	// FetchBaseURL is where the region says that nodes fetch from (N35); they go to their own --api.
	FetchBaseURL string
	Build        string
	// Failpoint is for tests, nil in production: it is called before and after each step.
	Failpoint func(name string)
}

// NextBatch asks for the next batch of a site in one wave. Number tells those of a workflow
// run apart: a repeated one makes the same batch.
type NextBatch struct {
	Fleet    fleet.FleetName `json:"fleet"`
	FleetRun int64           `json:"fleetRun"`
	Wave     int             `json:"wave"`
	Site     fleet.SiteName  `json:"site"`
	Mode     decide.SiteMode `json:"mode"`
	Size     int             `json:"size"`
	Workflow string          `json:"workflow"`
	Run      string          `json:"run"`
	Number   int             `json:"number"`
	Total    time.Duration   `json:"total"`
	TTL      time.Duration   `json:"ttl"`
	Tries    int             `json:"tries"`
}

// ID is fixed by run and number.
func (n NextBatch) ID() fleet.BatchID { return batchID(n.Run, n.Number) }

// GatherBatch asks for a batch of what waits at a site now.
type GatherBatch struct {
	Site     fleet.SiteName `json:"site"`
	Workflow string         `json:"workflow"`
	Run      string         `json:"run"`
	Build    string         `json:"build,omitempty"`
	Number   int            `json:"number"`
	Total    time.Duration  `json:"total"`
	TTL      time.Duration  `json:"ttl"`
	Tries    int            `json:"tries"`
}

// ID is fixed by run and number.
func (g GatherBatch) ID() fleet.BatchID { return batchID(g.Run, g.Number) }

func batchID(run string, number int) fleet.BatchID {
	sum := sha256.Sum256([]byte(run + "/batch/" + strconv.Itoa(number)))
	return fleet.BatchID(hex.EncodeToString(sum[:16]))
}

// BatchMade is a batch as its store made it: what was looked at, and what was claimed.
type BatchMade struct {
	Looked int `json:"looked"` // 0 is the end of the site's part of the wave
	// Closed is set when that is because the site's window has closed.
	Closed bool `json:"closed,omitempty"`
	// Last is set when nothing was left to look at behind it.
	Last    bool             `json:"last,omitempty"`
	Claimed int              `json:"claimed"`
	Nodes   []fleet.NodeName `json:"nodes,omitempty"` // to be told, the active first
}

// BatchNext is the next batch, with the notify of its active node.
type BatchNext struct {
	BatchMade
	PreparedBatch
	ID fleet.BatchID `json:"id"`
}

// PreparedBatch is the notify of a node, nil when it has nothing to be told of.
type PreparedBatch struct {
	Command *fleet.BatchCommand `json:"command,omitempty"`
	// Wait is set alone if the node has not enrolled: prepare its notify again after that time.
	Wait time.Duration `json:"wait,omitempty"`
}

// NextBatch persists the next batch before anybody is told of it (N21), with the notify of its
// active node.
func (b *Batches) NextBatch(ctx context.Context, in NextBatch) (BatchNext, error) {
	token, hash, err := b.Tokens.New()
	if err != nil {
		return BatchNext{}, fail(ctx, err)
	}
	b.failpoint("before_batch")
	made, first, err := b.Maker.Next(ctx, in, hash)
	if err != nil {
		return BatchNext{}, fail(ctx, err)
	}
	if first == nil || len(made.Nodes) == 0 {
		return b.begin(ctx, made, fleet.BatchPrepare{ID: in.ID(), Tries: in.Tries, TTL: in.TTL})
	}
	b.failpoint("after_batch")
	out := BatchNext{BatchMade: made, ID: in.ID()}
	if out.Command, err = b.seal(ctx, made.Nodes[0], first, token); err != nil {
		return out, fail(ctx, err)
	}
	return out, fail(ctx, wakeNodes(ctx, b.Nodes, made.Nodes[0]))
}

// GatherBatch is NextBatch of what waits at a site.
func (b *Batches) GatherBatch(ctx context.Context, in GatherBatch) (BatchNext, error) {
	in.Build = b.Build
	b.failpoint("before_batch")
	made, err := b.Gatherer.Gather(ctx, in)
	if err != nil {
		return BatchNext{}, fail(ctx, err)
	}
	return b.begin(ctx, made, fleet.BatchPrepare{ID: in.ID(), Tries: in.Tries, TTL: in.TTL})
}

func (b *Batches) begin(ctx context.Context, made BatchMade, first fleet.BatchPrepare) (BatchNext, error) {
	b.failpoint("after_batch")
	out := BatchNext{BatchMade: made, ID: first.ID}
	if len(made.Nodes) == 0 {
		return out, nil
	}
	var err error
	first.Node = made.Nodes[0]
	out.PreparedBatch, err = b.prepare(ctx, first)
	return out, fail(ctx, err)
}

// PrepareBatch makes the notify of one node.
func (b *Batches) PrepareBatch(ctx context.Context, in fleet.BatchPrepare) (PreparedBatch, error) {
	out, err := b.prepare(ctx, in)
	return out, fail(ctx, err)
}

func (b *Batches) prepare(ctx context.Context, in fleet.BatchPrepare) (PreparedBatch, error) {
	token, hash, err := b.Tokens.New()
	if err != nil {
		return PreparedBatch{}, err
	}
	b.failpoint("before_batch_prepare")
	in.TokenHash = hash
	notify, err := b.Store.PrepareBatch(ctx, in)
	if err != nil || notify == nil {
		return PreparedBatch{}, err
	}
	if notify.Wait > 0 {
		return PreparedBatch{Wait: notify.Wait}, nil
	}
	b.failpoint("after_batch_prepare")
	cmd, err := b.seal(ctx, in.Node, notify, token)
	if err != nil {
		return PreparedBatch{}, err
	}
	return PreparedBatch{Command: cmd}, wakeNodes(ctx, b.Nodes, in.Node)
}

// seal: a token leaves this process only sealed (N104).
func (b *Batches) seal(ctx context.Context, node fleet.NodeName, n *fleet.BatchNotify, token string) (*fleet.BatchCommand, error) {
	sealed, err := b.Tokens.Seal(n.SealingKey, token)
	if err != nil {
		return nil, err
	}
	cmd := n.Command
	cmd.FetchToken, cmd.CentralFetchBaseURL = sealed, b.FetchBaseURL
	cmd.Signed, err = b.Signer.Sign(ctx, node, cmd)
	return &cmd, err
}

// MissBatch writes down why a node's word is missing.
func (b *Batches) MissBatch(ctx context.Context, in fleet.BatchMiss) error {
	return fail(ctx, b.Store.MissBatch(ctx, in))
}

// EndBatch ends every delivery of the batch that is still open. Doors that this does not
// reach are told by the operations sweep.
func (b *Batches) EndBatch(ctx context.Context, id fleet.BatchID) (fleet.BatchEnded, error) {
	b.failpoint("before_batch_end")
	end, err := b.Store.EndBatch(ctx, id)
	b.failpoint("after_batch_end")
	if err != nil {
		return end, fail(ctx, err)
	}
	if err := b.Doors.TellDoors(ctx, ""); err != nil {
		b.Log.WarnContext(ctx, "doors are told by the next sweep", "batch", id, "error", err)
	}
	return end, nil
}

func (b *Batches) failpoint(name string) {
	if b.Failpoint != nil {
		b.Failpoint(name)
	}
}
