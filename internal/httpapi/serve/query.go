package serve

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// formats are those that query parameters have: how a value is read, and what is allowed.
var formats = map[string]struct {
	ok   func(value string) bool
	want string
}{
	"name":     {func(v string) bool { return fleet.ValidateName("", v) == nil }, "1 to 63 of a-z, 0-9 and '-', a letter or digit first and last"},
	"replica":  {fleet.ValidReplicaID, "the id of a replica, 12 hex digits"},
	"sha256":   {func(v string) bool { return fleet.ValidateHash("", fleet.Hash(v)) == nil }, "a SHA-256 in 64 lower-case hex digits"},
	"cursor":   {isCursor, WantCursor},
	"event-id": {isEventID, "the id of an event, as it was sent"},
	"wait":     {isWait, "a duration from 0s to " + strconv.Itoa(int(maxWait.Seconds())) + "s"},
}

// WantCursor says what a cursor is.
const WantCursor = `"next" of the page before`

func isCursor(v string) bool {
	_, err := base64.RawURLEncoding.DecodeString(v)
	return err == nil
}

func isEventID(v string) bool {
	_, err := postgres.ParseCursor(v)
	return err == nil
}

func isWait(v string) bool {
	_, ok := WaitOf(v)
	return ok
}

// checkQuery is the middleware of one huma operation that judges its query before huma reads it.
func (s *Server) checkQuery(ctx huma.Context, next func(huma.Context)) {
	if err := checkQuery(ctx.Operation(), ctx.URL()); err != nil {
		r, w := humachi.Unwrap(ctx)
		s.Refuse(w, r, err)
		return
	}
	next(ctx)
}

// checkQuery refuses parameters that an operation does not have, that are given twice, and values that it
// cannot read: a misspelt ?dryRun must not turn a question into a change (X19).
func checkQuery(op *huma.Operation, u url.URL) error {
	values, err := url.ParseQuery(u.RawQuery) // u.Query() drops what it cannot read
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "malformed query string: want name=value pairs, percent-encoded and separated by &").At("?")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := checkParam(op, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkParam(op *huma.Operation, name string, values []string) error {
	p := queryParamOf(op, name)
	switch {
	case p == nil:
		return fleet.Errorf(fleet.Invalid, "unknown query parameter %.40q; %s", name, allowedParams(op)).At(fleet.CutField(name))
	case len(values) > 1:
		return fleet.Errorf(fleet.Invalid, "query parameter %s is given %d times; give it once", name, len(values)).At(name)
	}
	if want := wants(p.Schema, values[0]); want != "" {
		return fleet.Errorf(fleet.Invalid, "invalid %s %.40q: want %s", name, values[0], want).At(name)
	}
	return nil
}

func queryParamOf(op *huma.Operation, name string) *huma.Param {
	for _, p := range op.Parameters {
		if p.In == "query" && p.Name == name {
			return p
		}
	}
	return nil
}

func allowedParams(op *huma.Operation) string {
	var names []string
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return "this operation has none"
	}
	return "use " + fleet.OrList(names)
}

// wants says what is allowed where a value is not, else "". An empty text is one that is left out.
func wants(schema *huma.Schema, value string) string {
	switch schema.Type {
	case huma.TypeBoolean:
		_, err := strconv.ParseBool(value)
		return unless(err == nil, "true or false")
	case huma.TypeInteger:
		least, most := bounds(schema)
		n, err := strconv.ParseInt(value, 10, 64)
		return unless(err == nil && n >= least && n <= most, fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	if value == "" {
		return ""
	}
	return wantsText(schema, value)
}

func wantsText(schema *huma.Schema, value string) string {
	format, hasFormat := formats[schema.Format]
	words := wordsOf(schema.Enum)
	switch {
	case hasFormat && !format.ok(value):
		return format.want
	case len(words) > 0 && !slices.Contains(words, value):
		return fleet.OrList(words)
	case schema.MaxLength != nil && utf8.RuneCountInString(value) > *schema.MaxLength:
		return fmt.Sprintf("at most %d characters", *schema.MaxLength)
	case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
		return "UTF-8 without a zero byte"
	}
	return ""
}

func unless(ok bool, want string) string { //nolint:revive // a condition, not a flag
	if ok {
		return ""
	}
	return want
}

func bounds(schema *huma.Schema) (least, most int64) {
	least, most = 0, math.MaxInt64
	if schema.Minimum != nil {
		least = int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		most = int64(*schema.Maximum)
	}
	return least, most
}

func wordsOf(enum []any) []string {
	words := make([]string, len(enum))
	for i, w := range enum {
		words[i] = fmt.Sprint(w)
	}
	return words
}

const maxWait = time.Minute

// WaitOf reads how long to wait; an empty text is not at all.
func WaitOf(text string) (wait time.Duration, ok bool) {
	if text == "" {
		return 0, true
	}
	wait, err := time.ParseDuration(text)
	return wait, err == nil && wait >= 0 && wait <= maxWait
}
