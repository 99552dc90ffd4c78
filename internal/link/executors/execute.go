package executors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Execute runs a module once it finds an executor. The kind of an error tells what happened: Unavailable was not
// started, Communication may have been started, ApplyFailed is the module's own error, Invalid is an error in the
// input.
func (p *Pool) Execute(ctx context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error) {
	began := p.o.Now()
	if _, limited := ctx.Deadline(); !limited {
		limited, cancel := context.WithTimeout(ctx, p.o.Limit)
		defer cancel()
		ctx = limited
	}
	answer, err := p.execute(ctx, e)
	kind := fleet.Kind("")
	if err != nil {
		kind = fleet.KindOf(err)
	}
	p.o.Done(kind, p.o.Now().Sub(began))
	return answer, err
}

func (p *Pool) execute(ctx context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error) {
	rest, err := p.fitting(ctx, e.Module, e.Input)
	if err != nil {
		return fleet.ExecutionAnswer{}, err
	}
	var last error
	tried := map[fleet.ConnectionID]bool{}
	for len(rest) > 0 {
		s, err := p.acquire(ctx, e.Module, rest)
		if errors.Is(err, errLookAgain) { // the awaited executors are gone
			if rest, err = p.fitting(ctx, e.Module, e.Input); err == nil {
				rest = without(rest, tried)
				continue
			}
		}
		if err != nil {
			return fleet.ExecutionAnswer{}, worse(last, err)
		}
		output, err := p.call(ctx, s, e)
		p.release(s)
		if err == nil {
			return fleet.ExecutionAnswer{Output: output, Connection: s.member.Connection}, p.fits(ctx, e.Module, s.member, output)
		}
		var again *tryAnother
		if !errors.As(err, &again) {
			return fleet.ExecutionAnswer{}, err
		}
		last = worse(last, again.error)
		if ctx.Err() != nil {
			return fleet.ExecutionAnswer{}, last
		}
		tried[s.member.Connection] = true
		rest = without(rest, tried)
	}
	if last == nil {
		last = fleet.Errorf(fleet.Unavailable, "the providers of %s are gone", e.Module).WithHint("retry later")
	}
	return fleet.ExecutionAnswer{}, last
}

func without(all []fleet.ModuleMember, tried map[fleet.ConnectionID]bool) []fleet.ModuleMember {
	return slices.DeleteFunc(all, func(m fleet.ModuleMember) bool { return tried[m.Connection] })
}

// worse keeps the error of an attempt that may have been started.
func worse(last, err error) error {
	if last != nil && fleet.KindOf(last) == fleet.Communication {
		return last
	}
	return err
}

// Check rejects an input that no current provider accepts. If a module is known but has no provider now, it accepts
// any JSON.
func (p *Pool) Check(ctx context.Context, of fleet.ModuleRef, input []byte) error {
	_, err := p.fitting(ctx, of, input)
	if err != nil && fleet.KindOf(err) == fleet.Unavailable {
		return p.o.Schemas.Valid(ctx, "", input)
	}
	return err
}

// fitting are the members whose schema accepts the input: during an upgrade they may differ.
func (p *Pool) fitting(ctx context.Context, of fleet.ModuleRef, input []byte) ([]fleet.ModuleMember, error) {
	all, err := p.members.callable(ctx, of)
	if err != nil {
		return nil, err
	}
	refused := map[string]error{}
	var fit []fleet.ModuleMember
	for _, m := range all {
		wrong, known := refused[m.InputSchema]
		if !known {
			wrong = p.o.Schemas.Valid(ctx, m.InputSchema, input)
			refused[m.InputSchema] = wrong
		}
		if wrong == nil {
			fit = append(fit, m)
		} else {
			err = wrong
		}
	}
	if len(fit) == 0 {
		return nil, err
	}
	return fit, nil
}

// fits rejects an answer that does not match the module's schema. It is not retried: the module has run.
func (p *Pool) fits(ctx context.Context, of fleet.ModuleRef, m fleet.ModuleMember, output []byte) error {
	if len(output) > fleet.MaxOutput {
		return tooMuch(of)
	}
	err := p.o.Schemas.Valid(context.WithoutCancel(ctx), m.OutputSchema, output)
	var wrong *fleet.Error
	if !errors.As(err, &wrong) || wrong.Kind != fleet.Invalid {
		return err
	}
	return fleet.Errorf(fleet.ApplyFailed, "the answer of %s at provider %s does not match its schema: at %s %s",
		of, m.Provider, wrong.Field, wrong.Message).WithHint(wrong.Hint)
}

func tooMuch(of fleet.ModuleRef) error {
	return fleet.Errorf(fleet.ApplyFailed, "the answer of %s exceeds %d bytes", of, fleet.MaxOutput).
		WithHint("let the module return an address to fetch its result from")
}

// tryAnother is an error after which another member is tried.
type tryAnother struct{ error }

func (t *tryAnother) Unwrap() error { return t.error }

func (p *Pool) call(ctx context.Context, s *slot, e fleet.Execution) ([]byte, error) {
	ctx, t := traced(carrying(ctx))
	response, err := nodev1.NewExecutorClient(s.line.conn).Execute(ctx, &nodev1.ExecuteRequest{
		ConnectionId: string(s.member.Connection), Module: string(e.Module.Name), ExecutionId: e.ID, Input: e.Input,
	})
	if err == nil {
		return response.GetOutput(), nil
	}
	return nil, p.judge(ctx, e.Module, s.member, t, status.Convert(err))
}

// judge classifies the end of an attempt. A provider that answers Unavailable, ResourceExhausted or Unimplemented
// has not started.
func (p *Pool) judge(ctx context.Context, of fleet.ModuleRef, m fleet.ModuleMember, t *trace, st *status.Status) error {
	switch st.Code() { //nolint:exhaustive // all others are the module's own
	case codes.ResourceExhausted:
		if t.answers.Load() { // the message was longer than is read
			return tooMuch(of)
		}
		return &tryAnother{fleet.Errorf(fleet.Unavailable, "provider %s has no capacity for %s", m.Provider, of).WithHint("retry later")}
	case codes.Unimplemented:
		return &tryAnother{fleet.Errorf(fleet.Unavailable, "the executor of provider %s does not know %s", m.Provider, of).
			WithHint("check the executor address that it registers")}
	case codes.Unavailable:
		if t.answered.Load() || !t.sent.Load() {
			return &tryAnother{fleet.Errorf(fleet.Unavailable, "provider %s is unreachable, or does not accept %s now", m.Provider, of).
				WithHint(cmp.Or(fleet.ExecutorHint(st.Err()), p.o.Hint(st.Err()), "retry later"))}
		}
		return &tryAnother{broken(of, m)}
	case codes.Canceled, codes.Aborted:
		return &tryAnother{broken(of, m)}
	case codes.DeadlineExceeded:
		if ctx.Err() != nil && !t.sent.Load() {
			return &tryAnother{fleet.Errorf(fleet.Unavailable, "timed out connecting to provider %s", m.Provider)}
		}
		return &tryAnother{fleet.Errorf(fleet.Communication, "%s timed out; provider %s may still be running it", of, m.Provider).
			WithHint("use a longer timeout")}
	}
	return fleet.Errorf(fleet.ApplyFailed, "%s failed at provider %s (%s)", of, m.Provider, st.Code()).WithHint(said(st.Message()))
}

func broken(of fleet.ModuleRef, m fleet.ModuleMember) error {
	return fleet.Errorf(fleet.Communication, "the call of %s at provider %s was interrupted; it may have been executed", of, m.Provider).
		WithHint("retry it if that is safe")
}

const maxSaid = 512

// said is the module's own message, truncated.
func said(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid], "") + "…"
	}
	return fmt.Sprintf("the module says: %s", text)
}
