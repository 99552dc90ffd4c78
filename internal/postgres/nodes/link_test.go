package nodes_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) opens(provider fleet.ProviderName, change ...func(*fleet.Registration)) fleet.ConnectionID {
	b.T.Helper()
	id, err := b.Registers(provider, change...)
	require.NoError(b.T, err)
	_, err = b.OpenConnection(b.Ctx(), id, "token:a", linkServer)
	require.NoError(b.T, err)
	return id
}

func inGroup(g fleet.GroupID) func(*fleet.Registration) {
	return func(r *fleet.Registration) { r.Group = g }
}

// C44, C59, C65, X23: every event on a row of every state does what the machine says, and
// nothing twice.
func TestConnectionRowsMoveByTheMachine(t *testing.T) {
	t.Parallel()
	b := bare(t)
	for _, from := range fleet.ConnectionStates() {
		for _, on := range fleet.ConnectionEvents() {
			to, err := from.Next(on)
			if on == fleet.StreamOpened || err == nil && to != fleet.ConnectionDisconnected && on != fleet.DrainAcked {
				continue // OpenConnection's, below
			}
			id, err2 := b.Registers("p")
			require.NoError(t, err2)
			b.Exec(`UPDATE connections SET state = $2, active_at = now(), drain_acked_at = now(),
				ended_at = CASE WHEN $2 = 'Disconnected' THEN now() END WHERE id = $1`, string(id), string(from))
			moves := nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{id: on}}
			if on == fleet.DrainAcked {
				moves = nodes.ConnectionMoves{Acked: map[fleet.ConnectionID]int{id: 1}}
			}
			for _, server := range []string{"another", linkServer, linkServer} {
				require.NoError(t, b.MoveConnections(b.Ctx(), server, moves))
				c, err3 := b.GetConnection(b.Ctx(), id)
				require.NoError(t, err3)
				want := to
				if server == "another" || err != nil {
					want = from
				}
				require.Equal(t, want, c.State, "%s on %s at %s", on, from, server)
			}
			b.Exec("DELETE FROM connections WHERE id = $1", string(id))
		}
	}
	id := b.opens("once")
	_, err := b.OpenConnection(b.Ctx(), id, "token:a", linkServer)
	stores.Refused(t, fleet.IllegalState, err)
	_, err = b.OpenConnection(b.Ctx(), id, "token:b", linkServer)
	stores.Refused(t, fleet.Denied, err)
}

// C51, C55, C56, C57, C58, C76, C80: who owns a module namespace, and until when.
func TestModuleNamespaceOwnership(t *testing.T) {
	t.Parallel()
	b := bare(t)
	one := b.opens("one", inGroup("g"))
	two, err := b.Registers("two", inGroup("g"), stores.OfIdentity("token:b"))
	require.NoError(t, err)
	_, err = b.Registers("three")
	stores.Refused(t, fleet.Conflict, err)
	_, err = b.Registers("three", inGroup("h"))
	stores.Refused(t, fleet.Conflict, err)
	below := func(r *fleet.Registration) { r.Namespace = "acme.deep" }
	b.opens("three", below) // another module namespace
	end := func(id fleet.ConnectionID) {
		require.NoError(t, b.MoveConnections(b.Ctx(), linkServer, nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{id: fleet.Deregistered}}))
	}
	end(one)
	_, err = b.Registers("four")
	stores.Refused(t, fleet.Conflict, err)
	end(two)
	b.opens("four")

	// One of no group has its module namespace alone, and leaves it with its own end.
	alone := func(r *fleet.Registration) { r.Namespace = "acme.alone" }
	solo := b.opens("five", alone)
	for _, change := range [][]func(*fleet.Registration){{alone}, {alone, inGroup("g")}} {
		_, err = b.Registers("six", append(change, stores.OfIdentity("token:b"))...)
		stores.Refused(t, fleet.Conflict, err)
	}
	end(solo)
	_, err = b.Registers("six", alone, inGroup("g"), stores.OfIdentity("token:b"))
	require.NoError(t, err)
}

// X23: of those that claim a module namespace at once, one gets it.
func TestModuleNamespaceIsClaimedOnce(t *testing.T) {
	t.Parallel()
	b := bare(t)
	require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
	const at = 12
	won := make(chan int, at)
	_ = stores.AtOnce(at, func(i int) error {
		_, err := b.RegisterConnection(b.Ctx(), fleet.Registration{
			Identity: "token:" + string(rune('a'+i)), Provider: "p", Namespace: "acme", Executor: "a:1", Protocol: 1,
		}, linkServer)
		if err == nil {
			won <- i
		} else if fleet.KindOf(err) != fleet.Conflict {
			t.Error(err)
		}
		return nil
	})
	require.Len(t, won, 1)
	require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT count(*) FROM connections"))
}

// C75: a server that is gone is swept by what was seen of it; one that spoke since is not.
func TestSweepLinkServer(t *testing.T) {
	t.Parallel()
	b := bare(t)
	id := b.opens("one")
	server := func() nodes.LinkServer {
		all, err := b.LinkServers(b.Ctx())
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	seen := server()
	require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
	swept, err := b.SweepLinkServer(b.Ctx(), seen)
	require.NoError(t, err)
	require.Zero(t, swept)
	swept, err = b.SweepLinkServer(b.Ctx(), server())
	require.NoError(t, err)
	require.Equal(t, nodes.SweptServer{Connections: 1}, swept)
	c, err := b.GetConnection(b.Ctx(), id)
	require.NoError(t, err)
	require.Equal(t, fleet.ServerLapsed, c.Reason)
	_, err = b.RegisterConnection(b.Ctx(), fleet.Registration{Identity: "token:a", Provider: "p", Protocol: 1}, linkServer)
	stores.Refused(t, fleet.Unavailable, err) // until it speaks again

	b.opens("two")
	b.Exec("DELETE FROM link_servers")
	left := server()
	require.True(t, left.SeenAt.IsZero(), "known by its connections only")
	swept, err = b.SweepLinkServer(b.Ctx(), left)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Connections)
}

// Ended connections and refusals go by retention, live ones never.
func TestLinkIsCollected(t *testing.T) {
	t.Parallel()
	b := bare(t)
	live, old := b.opens("live", func(r *fleet.Registration) { r.Namespace = "live" }), b.opens("old")
	require.NoError(t, b.MoveConnections(b.Ctx(), linkServer, nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{old: fleet.StreamClosed}}))
	b.Exec("UPDATE connections SET registered_at = now() - interval '1 year', ended_at = ended_at - interval '8 days'")
	require.NoError(t, b.AddRefusals(b.Ctx(), []audit.Refusal{
		{Door: "link", Identity: "x", Reason: "y", Times: 1}, {Door: "link", Identity: "z", Reason: "y", Times: 1},
	}, time.Now()))
	b.Exec("UPDATE refusals SET at = now() - interval '31 days' WHERE identity = 'x'")
	for _, kind := range []fleet.CollectedKind{fleet.CollectConnections, fleet.CollectRefusals} {
		n, more, err := b.CollectPage(b.Ctx(), kind, fleet.DefaultRetention())
		require.NoError(t, err)
		require.EqualValues(t, 1, n, kind)
		require.False(t, more)
	}
	_, err := b.GetConnection(b.Ctx(), old)
	stores.Refused(t, fleet.NotFound, err)
	require.Equal(t, []string{string(live)}, stores.Scan[[]string](b, "SELECT array_agg(DISTINCT connection) FROM modules"))
}

// C87: whatever callers send, what is written down of it is text that the database takes.
func TestRefusalsOfNonsense(t *testing.T) {
	t.Parallel()
	b := bare(t)
	w := audit.NewWindow(time.Now)
	for _, nonsense := range []string{"/\x00", "\xff\xfe", strings.Repeat("é", 1000) + "x", "\xe9", "\u202e\x1b[2J"} {
		w.Add(audit.Refusal{Door: nonsense, Identity: "?" + nonsense, Reason: nonsense, What: nonsense, By: nonsense[:1], Times: -7})
	}
	require.NoError(t, b.AddRefusals(b.Ctx(), w.Take(), time.Now()))
	require.Equal(t, 5, stores.Scan[int](b, "SELECT count(*) FROM refusals"))
}

// What is told to the link arrives, and only after the commit.
func TestListenLink(t *testing.T) {
	t.Parallel()
	b := bare(t)
	ctx, cancel := context.WithCancel(b.Ctx())
	type word struct {
		id    fleet.ConnectionID
		event fleet.ConnectionEvent
	}
	heard, stopped := make(chan word, 10), make(chan struct{})
	go func() {
		defer close(stopped)
		_ = b.ListenLink(ctx, nodes.LinkHeard{
			Connection: func(id fleet.ConnectionID, on fleet.ConnectionEvent) { heard <- word{id, on} },
			Wanted:     func(fleet.NodeName, int64) {}, Set: func(fleet.NodeName, int64) {},
		}) // ends with ctx
	}()
	id := b.opens("one")
	stores.Eventually(t, "it listens", func() bool {
		return stores.Scan[int64](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN holdfast_link%'") == 1
	})
	_, err := b.AskDrain(b.Ctx(), id, "a\x00b", time.Minute)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
	_, err = b.AskDrain(b.Ctx(), id, "x", time.Minute)
	require.NoError(t, err)
	require.Equal(t, word{id, postgres.DrainAsked}, <-heard)
	cancel()
	<-stopped
}

// C73, C76, C80, C82: registrations that are written together end as they would one after the
// other, whatever they are.
func TestRegisterConnectionsTogether(t *testing.T) {
	t.Parallel()
	together, apart := bare(t), bare(t)
	pick := rand.New(rand.NewPCG(7, 7))
	type state struct{ Identity, Provider, Namespace, Group, Modules string }
	read := func(b *bench) (out []state) {
		rows, err := b.Raw.Query(b.Ctx(), `SELECT c.identity, c.provider, c.module_namespace, c.group_id,
			coalesce((SELECT string_agg(m.name || m.input_schema, ' ' ORDER BY m.name) FROM modules m WHERE m.connection = c.id), '')
			FROM connections c WHERE c.ended_at IS NULL ORDER BY 1, 2`)
		require.NoError(t, err)
		out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[state])
		require.NoError(t, err)
		return out
	}
	for _, b := range []*bench{together, apart} {
		require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
	}
	refusals, taken := 0, 0
	for range 40 {
		var all []fleet.Registration
		known := map[string]bool{}
		for range 1 + pick.IntN(8) {
			r := fleet.Registration{
				Identity: "token:" + string(rune('a'+pick.IntN(2))), Provider: fleet.ProviderName("p" + string(rune('0'+pick.IntN(5)))), Protocol: 1,
			}
			if known[r.Identity+string(r.Provider)] {
				continue
			}
			known[r.Identity+string(r.Provider)] = true
			if n := pick.IntN(4); n > 0 {
				r.Namespace, r.Executor = fleet.ModuleNamespace([]string{"", "acme", "acme", "other"}[n]), "a:1"
				r.Group = fleet.GroupID([]string{"", "g", "g", "h"}[pick.IntN(4)])
				r.Modules = []fleet.ModuleOffer{{Name: "b"}, {Name: "A"}}
				if pick.IntN(6) == 0 {
					r.Modules[0].InputSchema = "{}"
				}
			}
			all = append(all, r)
		}
		got, err := together.RegisterConnections(t.Context(), all, linkServer)
		require.NoError(t, err)
		for i, r := range all {
			one, err := apart.RegisterConnection(t.Context(), r, linkServer)
			require.Equal(t, fleet.KindOf(err), fleet.KindOf(got[i].Err))
			require.Len(t, got[i].Replaced, len(one.Replaced))
			if err != nil {
				require.Equal(t, fleet.Conflict, fleet.KindOf(err))
				require.Empty(t, got[i].ID)
				refusals++
			} else {
				taken++
			}
		}
		require.Equal(t, read(apart), read(together))
	}
	require.Greater(t, refusals, 20)
	require.Greater(t, taken, 60)
}

// C61: of those that are opened together each is opened once, and by its own identity only.
func TestOpenConnectionsTogether(t *testing.T) {
	t.Parallel()
	b := bare(t)
	one, err := b.Registers("one", inGroup("g"))
	require.NoError(t, err)
	two, err := b.Registers("two", inGroup("g"))
	require.NoError(t, err)
	got, err := b.OpenConnections(t.Context(), []nodes.Opening{
		{ID: one, Identity: "token:a"}, {ID: two, Identity: "token:b"}, {ID: one, Identity: "token:a"}, {ID: "unknown", Identity: "token:a"},
	}, linkServer)
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	require.Equal(t, fleet.ConnectionActive, got[0].State)
	require.Len(t, got[0].Modules, 2)
	require.Equal(t, fleet.Denied, fleet.KindOf(got[1].Err))
	require.Equal(t, fleet.IllegalState, fleet.KindOf(got[2].Err))
	require.Equal(t, fleet.NotFound, fleet.KindOf(got[3].Err))
}

// Heartbeats wait for nobody who changes a row, and are written for all others.
func TestHeartbeatsDoNotWait(t *testing.T) {
	t.Parallel()
	b := bare(t)
	locked, free := b.opens("locked", inGroup("g")), b.opens("free", inGroup("g"))
	tx, err := b.Raw.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "SELECT FROM connections WHERE id = $1 FOR UPDATE", string(locked))
	require.NoError(t, err)
	require.NoError(t, b.RecordHeartbeats(t.Context(), linkServer, []nodes.Heartbeat{{ID: locked, InFlight: 3}, {ID: free, InFlight: 4}}))
	for id, want := range map[fleet.ConnectionID]int{locked: 0, free: 4} {
		c, err := b.GetConnection(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, c.InFlight)
	}
}

// public is a public key of one byte, as registrations have it.
func public(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, ed25519.PublicKeySize))
}

// C59: a connection ends when its node has another key since, whatever the clock of the database
// says: it may have been set back.
func TestHeldConnectionsByKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		want   bool
	}{
		"nothing": {"UPDATE nodes SET seen_at = now() WHERE name = $1", false},
		"the clock is set back after it enrolled, or rotated its key": {
			"UPDATE nodes SET enrolled_at = now() + interval '1 h', rotated_at = now() + interval '1 h' WHERE name = $1", false,
		},
		"it has another key": {"UPDATE nodes SET signing_key = decode(repeat('02', 32), 'hex') WHERE name = $1", true},
		"it has another key, and the clock was set back meanwhile": {
			"UPDATE nodes SET signing_key = decode(repeat('02', 32), 'hex'), enrolled_at = now() - interval '1 h' WHERE name = $1", true,
		},
		"its key was revoked": {"UPDATE nodes SET revoked_at = now() WHERE name = $1", true},
		"it was removed":      {"UPDATE nodes SET removed_at = now() WHERE name = $1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Exec("UPDATE nodes SET signing_key = decode(repeat('01', 32), 'hex'), enrolled_at = now() - interval '1 min' WHERE name = $1", nodeA)
			id := b.linkedBy(nodeA, public(1))
			b.Exec(c.change, nodeA)
			held, err := b.HeldConnections(t.Context(), drainServer)
			require.NoError(t, err)
			require.Contains(t, held, id)
			require.Equal(t, c.want, held[id].Revoked)
		})
	}
	t.Run("the key was changed while it registered", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Exec("UPDATE nodes SET signing_key = decode(repeat('02', 32), 'hex'), enrolled_at = now() - interval '1 min' WHERE name = $1", nodeA)
		id := b.linkedBy(nodeA, public(1))
		held, err := b.HeldConnections(t.Context(), drainServer)
		require.NoError(t, err)
		require.True(t, held[id].Revoked)
	})
}
