package stores

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Collect collects all pages of one kind, and counts what it removed.
func (b *Bench) Collect(kind fleet.CollectedKind) int64 {
	b.T.Helper()
	var all int64
	for {
		n, more, err := b.CollectPage(b.Ctx(), kind, fleet.DefaultRetention())
		require.NoError(b.T, err)
		if all += n; !more {
			return all
		}
	}
}

// CollectAll collects all kinds, and counts what it removed of each.
func (b *Bench) CollectAll() map[fleet.CollectedKind]int64 {
	b.T.Helper()
	out := map[fleet.CollectedKind]int64{}
	for _, kind := range fleet.CollectedKinds() {
		if n := b.Collect(kind); n > 0 {
			out[kind] = n
		}
	}
	return out
}

// Age makes everything older.
func (b *Bench) Age(by string) {
	b.T.Helper()
	for _, sql := range []string{
		`UPDATE bodies SET used_at = used_at - $1::interval`,
		`UPDATE uploads SET updated_at = updated_at - $1::interval`,
		`UPDATE revisions SET created_at = created_at - $1::interval`,
		`UPDATE deliveries SET ended_at = ended_at - $1::interval`,
		`UPDATE operations SET ended_at = ended_at - $1::interval`,
		`UPDATE events SET at = at - $1::interval`,
	} {
		b.Exec(sql, by)
	}
}
