// Package stores is what the tests of the store's areas share: a region with one site on a real Postgres, and what
// those tests do to it.
package stores

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// The names that every test uses; each test has a database of its own.
const (
	Project = fleet.ProjectName("default")
	Plant   = fleet.SiteName("plant")
	Press   = fleet.InstanceName("press")
	NodeA   = fleet.NodeName("plant-a") // the configured active
	NodeB   = fleet.NodeName("plant-b") // the configured standby
	Run1    = "run-1"
	Run2    = "run-2"
	minute  = time.Minute
	// Deadline bounds every wait of these tests.
	Deadline = 2 * time.Minute
)

// The keys of the objects that every test uses.
var (
	PressKey = fleet.InstanceKey(Plant, Press)
	SiteKey  = fleet.ObjectKey{Kind: fleet.KindSite, Name: string(Plant)}
)

// Bench is a region with one site, and a connection of its own beside the store.
type Bench struct {
	*store.Store
	T   *testing.T
	URL string
	Raw *pgxpool.Pool
}

// Setup opens a fresh region whose site has two enrolled nodes.
func Setup(t *testing.T) *Bench {
	t.Helper()
	b := Bare(t)
	b.PutSite(Plant, NodeA, NodeB)
	b.MustEnrol(NodeA)
	b.MustEnrol(NodeB)
	return b
}

// Bare opens a fresh region in which nothing is declared.
func Bare(t *testing.T) *Bench {
	t.Helper()
	url := testkit.DatabaseURL(t)
	s, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 16 // transactions that are held open, and a look beside them
	raw, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	return &Bench{Store: s, T: t, URL: url, Raw: raw}
}

// Ctx ends with the test.
func (b *Bench) Ctx() context.Context { return b.T.Context() }

// RowReader reads one row by plain SQL.
type RowReader interface {
	// ReadRow reads the one value of a row into a variable.
	ReadRow(into any, sql string, args ...any)
}

// Scan reads the one value of a row by plain SQL.
func Scan[T any](b RowReader, sql string, args ...any) T {
	var v T
	b.ReadRow(&v, sql, args...)
	return v
}

// ReadRow reads the one value of a row into a variable.
func (b *Bench) ReadRow(into any, sql string, args ...any) {
	b.T.Helper()
	require.NoError(b.T, b.Raw.QueryRow(b.Ctx(), sql, args...).Scan(into), sql)
}

// Exec runs plain SQL.
func (b *Bench) Exec(sql string, args ...any) {
	b.T.Helper()
	_, err := b.Raw.Exec(b.Ctx(), sql, args...)
	require.NoError(b.T, err, sql)
}

// Refused requires an error of a kind.
func Refused(t *testing.T, kind fleet.Kind, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind, fleet.KindOf(err), "%v", err)
}

// PutSite declares a site with two nodes, or with one where the standby is "".
func (b *Bench) PutSite(site fleet.SiteName, active, standby fleet.NodeName) {
	b.T.Helper()
	_, err := b.Declare(b.Ctx(), WriteOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}), TwoNodes(active, standby))
	require.NoError(b.T, err)
}
