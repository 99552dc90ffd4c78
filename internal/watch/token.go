package watch

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// The reasons for which a watch cannot resume at a place.
const (
	reasonCollected   = "collected"
	reasonUndone      = "undone"
	reasonOtherFilter = "other_filter"
)

// token is a place to resume from: the filter, the era by its random id, and the place in the feed. To clients it is
// opaque.
type token struct {
	filter, era string
	at          postgres.Cursor
}

func (t token) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(t.filter + " " + t.era + " " + t.at.String()))
}

func parseToken(text string) (token, error) {
	bad := fleet.Errorf(fleet.Invalid, "invalid token %.60q: want the token of a line of a watch", text).At("after")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return token{}, bad
	}
	parts := strings.Split(string(raw), " ")
	if len(parts) != 3 {
		return token{}, bad
	}
	at, err := postgres.ParseCursor(parts[2])
	if err != nil {
		return token{}, bad
	}
	return token{parts[0], parts[1], at}, nil
}

// sum tells one filter from another.
func (f Filter) sum() string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", f.Kinds, f.Owner, f.Region, f.Project))
	return hex.EncodeToString(h[:8])
}

// check returns the reason why a watch cannot resume at a token, "" when it can. A place of an earlier era counts, if a
// restore did not undo it.
func (s *Stream) check(ctx context.Context, t token) (string, error) {
	if t.filter != s.Filter.sum() {
		return reasonOtherFilter, nil
	}
	known, err := s.Source.EraID(ctx, t.at.Era)
	if err != nil {
		return "", err
	}
	if known != t.era {
		return reasonUndone, nil
	}
	err = s.Source.FeedKept(ctx, t.at)
	if fleet.KindOf(err) == fleet.Gone {
		return reasonCollected, nil
	}
	return "", err
}
