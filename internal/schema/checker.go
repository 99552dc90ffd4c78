package schema

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// maxKept bounds the compiled schemas that are kept.
	maxKept = 1024
	// atOnce bounds the bytes of JSON that are checked at once: in memory they take some twenty
	// times as much.
	atOnce = 8 << 20
)

// Checker checks documents; it is safe for concurrent use.
type Checker struct {
	bytes *semaphore.Weighted

	mu   sync.Mutex
	kept map[[sha256.Size]byte]*compiled
}

// NewChecker makes one with an empty cache.
func NewChecker() *Checker {
	return &Checker{bytes: semaphore.NewWeighted(atOnce), kept: map[[sha256.Size]byte]*compiled{}}
}

// Valid refuses what is not one JSON document with each name once, or does not match the
// schema. The kind is Invalid; the field is the place in the document.
func (c *Checker) Valid(ctx context.Context, schema string, doc []byte) error {
	if err := scan(doc); err != nil {
		return err
	}
	if schema == "" {
		return nil
	}
	s, err := c.compiled(schema)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "use a schema that was accepted: %w", err)
	}
	weight := min(int64(len(doc)), atOnce)
	if err := c.bytes.Acquire(ctx, weight); err != nil {
		return fleet.Errorf(fleet.Unavailable, "there was no time to check it")
	}
	defer c.bytes.Release(weight)
	return refusal(s.check(doc))
}

func (c *Checker) compiled(schema string) (*compiled, error) {
	key := sha256.Sum256([]byte(schema))
	c.mu.Lock()
	s, ok := c.kept[key]
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := compile(schema)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxKept {
		clear(c.kept) // they are made anew as they are needed
	}
	c.kept[key] = s
	return s, nil
}

func refusal(err error) error {
	if err == nil {
		return nil
	}
	var wrong *jsonschema.ValidationError
	switch {
	case errors.As(err, &wrong):
		return tell(wrong)
	case errors.Is(err, errNoJSON):
		return fleet.Errorf(fleet.Invalid, "this is not one JSON document").At("/")
	case errors.Is(err, errTooLong):
		return fleet.Errorf(fleet.Invalid, "to check it takes more than %d steps", maxSteps).At("/").
			WithHint("make the document smaller, or its schema simpler")
	}
	return fleet.Errorf(fleet.Internal, "check the document: %w", err)
}
