package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// ownerStore has what this region owns.
type ownerStore interface {
	// SharedRanges, SharedSums and SharedByUID give only what the peer is to have. A range without objects has no sum.
	SharedRanges(ctx context.Context, peer fleet.RegionName, in fleet.UIDRange, bits int) ([]fleet.RangeSum, error)
	SharedSums(ctx context.Context, peer fleet.RegionName, in []fleet.UIDRange) ([]fleet.CopySum, error)
	SharedByUID(ctx context.Context, peer fleet.RegionName, uids []string) ([]fleet.Object, error)
	CountShared(ctx context.Context, peer fleet.RegionName) (int64, error)
	UndoneFrom(ctx context.Context, token string) (int64, error)
	AnswerFor(ctx context.Context, peer fleet.RegionName, asked []fleet.CopyAsked) ([]fleet.CopyChange, error)
}

// Owner answers peers that compare their copies.
type Owner struct {
	Store ownerStore
	// Caller is the peer that sent a request.
	Caller func(ctx context.Context) fleet.RegionName
	// View shows a whole object.
	View func(fleet.Object) api.Object
	Now  func() time.Time
}

const (
	maxQuestion = 1 << 20 // bytes
	answerLimit = time.Minute
	objectsRead = 200 // at a time
)

// Mount mounts the answers.
func (o *Owner) Mount(handle func(pattern string, h http.Handler)) {
	handle("POST "+PathSums, answering(o, (*Owner).sums))
	handle("POST "+PathObjects, answering(o, (*Owner).objects))
	handle("POST "+PathNamed, answering(o, (*Owner).named))
}

type question interface{ Validate() error }

// answering reads a question, and answers it. After the first byte an answer can only break off.
func answering[Q question](o *Owner, answer func(*Owner, context.Context, fleet.RegionName, Q, *lines) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
		defer cancel()
		limit := http.NewResponseController(w).SetWriteDeadline
		_ = limit(o.Now().Add(answerLimit))       // not every writer has one
		defer func() { _ = limit(time.Time{}) }() // the connection may serve more
		var in Q
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
		if err == nil {
			err = json.Unmarshal(raw, &in)
		}
		if err != nil {
			err = fleet.Errorf(fleet.Invalid, "read the question: %w", err)
		} else if err = in.Validate(); err == nil {
			out := &lines{w: w}
			if err = answer(o, ctx, o.Caller(ctx), in, out); out.begun && err != nil {
				panic(http.ErrAbortHandler) //nolint:forbidigo // the way to break off an answer
			}
		}
		if err != nil {
			serve.WriteProblem(w, serve.ProblemFor(err))
		}
	})
}

// lines writes JSON lines.
type lines struct {
	w     io.Writer
	begun bool
	count int64
}

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the answer: %w", err)
	}
	l.begun = true
	l.count++
	_, err = l.w.Write(append(b, '\n'))
	return err
}

func (l *lines) end() error {
	return l.write(reply{WatchLine: api.WatchLine{Type: api.WatchSnapshotSize, Count: l.count}})
}

func (o *Owner) sums(ctx context.Context, peer fleet.RegionName, in sums, out *lines) error {
	undone, err := o.Store.UndoneFrom(ctx, in.Place)
	if err != nil {
		return err
	}
	ranges := int64(len(in.Sums) / wholeSum)
	if ranges == 0 {
		n, err := o.Store.CountShared(ctx, peer)
		if err != nil {
			return err
		}
		return out.write(differing{Objects: n, UndoneFrom: undone})
	}
	all, err := o.Store.SharedRanges(ctx, peer, uids(in.Bits, in.First, ranges), in.Bits)
	if err != nil {
		return err
	}
	here := wholeOf(all, in.First, ranges)
	answer := differing{Objects: here.all, UndoneFrom: undone}
	var differ []fleet.UIDRange
	for i := range ranges {
		if bytes.Equal(here.sums[i*wholeSum:(i+1)*wholeSum], in.Sums[i*wholeSum:(i+1)*wholeSum]) {
			continue
		}
		if here.objects[i] > tooMany && in.Bits < maxBits {
			return out.write(differing{Crowded: true})
		}
		answer.Ranges = append(answer.Ranges, sumsOf{Range: in.First + i})
		differ = append(differ, uids(in.Bits, in.First+i, 1))
	}
	if err := o.details(ctx, peer, in.Bits, differ, answer.Ranges); err != nil {
		return err
	}
	return out.write(answer)
}

// details adds the sums of the objects of some ranges.
func (o *Owner) details(ctx context.Context, peer fleet.RegionName, bits int, in []fleet.UIDRange, to []sumsOf) error {
	if len(in) == 0 {
		return nil
	}
	all, err := o.Store.SharedSums(ctx, peer, in)
	if err != nil {
		return err
	}
	at := make(map[int64]*sumsOf, len(to))
	for i := range to {
		at[to[i].Range] = &to[i]
	}
	for _, s := range all {
		d := at[rangeOf(s.UID, bits)]
		d.Sums = append(d.Sums, s.Sum[:shortSum]...)
	}
	return nil
}

// objects sends those that are wanted, as far as they are still what they were.
func (o *Owner) objects(ctx context.Context, peer fleet.RegionName, in wanted, out *lines) error {
	want := map[[shortSum]byte]bool{}
	var ranges []fleet.UIDRange
	for _, r := range in.Ranges {
		ranges = append(ranges, uids(in.Bits, r.Range, 1))
		for i := 0; i < len(r.Sums); i += shortSum {
			want[[shortSum]byte(r.Sums[i:])] = true
		}
	}
	all, err := o.Store.SharedSums(ctx, peer, ranges)
	if err != nil {
		return err
	}
	var ids []string
	for _, s := range all {
		if want[[shortSum]byte(s.Sum)] {
			ids = append(ids, s.UID)
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), objectsRead)
		objects, err := o.Store.SharedByUID(ctx, peer, ids[:n])
		if err != nil {
			return err
		}
		for i := range objects {
			if err := out.write(replyOf(fleet.CopyChange{Version: objects[i].Version, Object: &objects[i]}, o.View)); err != nil {
				return err
			}
		}
		ids = ids[n:]
	}
	return out.end()
}

func (o *Owner) named(ctx context.Context, peer fleet.RegionName, in named, out *lines) error {
	asked := make([]fleet.CopyAsked, len(in.Objects))
	for i, a := range in.Objects {
		asked[i] = a.asked()
	}
	answers, err := o.Store.AnswerFor(ctx, peer, asked)
	if err != nil {
		return err
	}
	for i, c := range answers {
		if in.Changed && (c.Object != nil || c.MovedTo == peer) && c.Version == asked[i].Version {
			continue
		}
		if err := out.write(replyOf(c, o.View)); err != nil {
			return err
		}
	}
	return out.end()
}
