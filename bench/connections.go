package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	connections     = 5000
	stormShare      = 10 // one in so many
	connectionWatch = 30 * time.Second
	stallFor        = 2 * time.Second
	// stallWatch is longer than a heartbeat timeout: whoever lapsed by a stall has ended by then.
	stallWatch = 18 * time.Second

	linkCPULimit    = 100.0 // percent of one core
	linkMemoryLimit = 500.0 // MB
	stormLimit      = 10.0  // seconds
)

// linkLab is a region with many providers, which live in a process of their own.
type linkLab struct {
	region  *region
	server  int // its process
	db      *pgx.Conn
	herd    *exec.Cmd
	orders  io.WriteCloser
	answers *json.Decoder
	token   string // of another identity
}

// measureConnections has many providers on one server, with all of its roles: what they cost,
// how it takes it when some lose their connection at once, and whom a stall costs theirs.
func measureConnections(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	k, arrived, err := r.connections(ctx)
	if err != nil {
		return nil, err
	}
	defer k.stop(ctx)
	steady, err := k.steady(ctx, l, arrived)
	if err != nil {
		return nil, err
	}
	storm, err := k.storms(ctx, l)
	if err != nil {
		return nil, err
	}
	stalls, err := k.stalls(ctx, l)
	return slices.Concat(steady, storm, stalls), err
}

func (r *region) connections(ctx context.Context) (*linkLab, tally, error) {
	k := &linkLab{region: r}
	var err error
	if k.server, err = r.pid("server"); err != nil {
		return nil, tally{}, err
	}
	if err := (peak{pid: k.server}).reset(); err != nil {
		return nil, tally{}, err
	}
	if k.db, err = r.postgres(ctx); err != nil {
		return nil, tally{}, err
	}
	tokens := [2]string{}
	for i := range tokens {
		t, err := r.api.CreateToken(ctx, api.TokenRequest{Role: "provider", Note: "bench"}, api.Mutation{})
		if err != nil {
			return nil, tally{}, err
		}
		tokens[i] = t.Token
	}
	k.token = tokens[1]
	arrived, err := k.start(tokens[0])
	if err != nil {
		k.stop(ctx)
	}
	return k, arrived, err
}

// start begins the process of the providers and waits until all are connected.
func (k *linkLab) start(token string) (tally, error) {
	self, err := os.Executable()
	if err != nil {
		return tally{}, err
	}
	k.herd = exec.Command(self, providersMode, k.region.doc.Link, token, strconv.Itoa(connections))
	k.herd.Stderr = os.Stderr
	k.herd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := k.herd.StdoutPipe()
	if err == nil {
		k.orders, err = k.herd.StdinPipe()
	}
	if err == nil {
		err = k.herd.Start()
	}
	if err != nil {
		return tally{}, fmt.Errorf("start the providers: %w", err)
	}
	k.answers = json.NewDecoder(out)
	return k.hear()
}

func (k *linkLab) hear() (tally, error) {
	var t tally
	if err := k.answers.Decode(&t); err != nil {
		return t, fmt.Errorf("hear of the providers: %w", err)
	}
	return t, nil
}

func (k *linkLab) order(what string) (tally, error) {
	if _, err := fmt.Fprintln(k.orders, what); err != nil {
		return tally{}, fmt.Errorf("tell the providers: %w", err)
	}
	return k.hear()
}

func (k *linkLab) stop(ctx context.Context) {
	if k.herd != nil && k.herd.Process != nil {
		_ = k.herd.Process.Kill() // it has nothing to lose
		_ = k.herd.Wait()
	}
	_ = k.db.Close(ctx) // it was only read
}

// steady is what the connections cost while nothing happens.
func (k *linkLab) steady(ctx context.Context, l *lab, arrived tally) ([]figure, error) {
	if err := pause.For(ctx, settle); err != nil {
		return nil, err
	}
	var memory series
	cpu, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		used, err := percents(ctx, connectionWatch, k.server)
		if err != nil {
			return 0, err
		}
		highest, err := peak{pid: k.server}.above()
		memory.ours = append(memory.ours, float64(highest)/megabyte)
		return used[0], err
	}, loopPercent)
	return []figure{
		{
			name: fmt.Sprintf("connections: CPU of the server, %d providers, of one core", connections), unit: "%", series: cpu,
			by: byValue, limit: linkCPULimit, note: fmt.Sprintf("all connected in %.1f s, %d at a time", arrived.Took.Seconds(), arriving),
		},
		{
			name: "connections: memory of the server", unit: "MB", series: memory, by: byValue, limit: linkMemoryLimit,
			note: "its highest, with all roles",
		},
	}, err
}

func (k *linkLab) storms(ctx context.Context, l *lab) ([]figure, error) {
	var beside []float64
	s, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		back, slowest, err := k.storm(ctx)
		beside = append(beside, slowest.Seconds())
		return back.Seconds(), err
	}, loopSeconds)
	return []figure{{
		name: fmt.Sprintf("connections: %d lost at once, until all are Active again", connections/stormShare), unit: "s", series: s,
		by: byValue, limit: stormLimit, note: fmt.Sprintf("the pause before the first attempt is 0.5 to 1.5 s of it; "+
			"slowest registration of another identity meanwhile %s", spread(beside, "s")),
	}}, err
}

// storm cuts some connections at once, while another identity registers repeatedly.
func (k *linkLab) storm(ctx context.Context) (back, slowest time.Duration, err error) {
	meanwhile, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		slowest, err = k.bystander(meanwhile)
		return err
	})
	t, err := k.order(fmt.Sprintf("drop %d", connections/stormShare))
	cancel()
	err = errors.Join(err, group.Wait())
	var live int
	if err == nil {
		err = k.db.QueryRow(ctx, "SELECT count(*) FROM connections WHERE state = 'Active' AND provider LIKE 'bench-%'").Scan(&live)
	}
	if err == nil && live != connections {
		err = fmt.Errorf("%d connections are Active, not %d", live, connections)
	}
	return t.Took, slowest, err
}

// bystander is another identity that registers and leaves until the context ends; it gives how
// long the slowest registration took.
func (k *linkLab) bystander(ctx context.Context) (time.Duration, error) {
	conn, err := grpc.NewClient(k.region.doc.Link, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it was only used
	client := nodev1.NewControlPlaneClient(conn)
	as := metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "authorization", "Bearer "+k.token)
	slowest := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		got, err := client.Register(as, &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: "bystander"})
		if err != nil {
			return 0, fmt.Errorf("register beside a storm: %w", err)
		}
		slowest = max(slowest, time.Since(began))
		if _, err := client.Deregister(as, &nodev1.DeregisterRequest{ConnectionId: got.GetConnectionId()}); err != nil {
			return 0, fmt.Errorf("deregister beside a storm: %w", err)
		}
	}
	return slowest, nil
}

// stalls pauses each party in turn and counts the connections that ended by it.
func (k *linkLab) stalls(ctx context.Context, l *lab) ([]figure, error) {
	database, err := k.database(l)
	if err != nil {
		return nil, err
	}
	var out []figure
	for _, s := range []struct {
		who  string
		pids []int
	}{{"the server", []int{k.server}}, {"the providers", []int{k.herd.Process.Pid}}, {"Postgres", database}} {
		before, err := k.order("count")
		if err != nil {
			return nil, err
		}
		ended, began, err := k.stall(ctx, s.pids)
		if err != nil {
			return nil, fmt.Errorf("pause %s: %w", s.who, err)
		}
		after, err := k.order("count")
		if err != nil {
			return nil, err
		}
		f := figure{
			name: fmt.Sprintf("connections: ended by a stall of %s of %.0f s", s.who, stallFor.Seconds()), by: byValue,
			series: series{ours: []float64{float64(max(ended, int(after.Lost-before.Lost)))}},
		}
		if f.note, err = k.endings(ctx, began); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// database is Postgres with all its children.
func (k *linkLab) database(l *lab) ([]int, error) {
	first, err := k.region.pid("postgres")
	if err != nil {
		return nil, err
	}
	ours, err := l.processes()
	if err != nil {
		return nil, err
	}
	all := []int{first}
	for pid, s := range ours {
		if s.parent == first {
			all = append(all, pid)
		}
	}
	return all, nil
}

// stall pauses processes, and gives how many connections ended since.
func (k *linkLab) stall(ctx context.Context, pids []int) (ended int, began time.Time, err error) {
	if err := k.db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&began); err != nil {
		return 0, began, err
	}
	err = send(syscall.SIGSTOP, pids)
	err = errors.Join(err, pause.For(ctx, stallFor), send(syscall.SIGCONT, pids), pause.For(ctx, stallWatch))
	if err != nil {
		return 0, began, err
	}
	err = k.db.QueryRow(ctx, "SELECT count(*) FROM connections WHERE ended_at >= $1", began).Scan(&ended)
	return ended, began, err
}

// endings says how connections ended since, and one of each whose.
func (k *linkLab) endings(ctx context.Context, since time.Time) (string, error) {
	var text string
	err := k.db.QueryRow(ctx, `SELECT coalesce(string_agg(times || ' ' || reason || ', such as ' || provider, '; '), '')
		FROM (SELECT count(*) AS times, reason, min(provider) AS provider FROM connections WHERE ended_at >= $1 GROUP BY reason) e`, since).Scan(&text)
	return text, err
}

func send(signal syscall.Signal, pids []int) error {
	var failures error
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			failures = errors.Join(failures, err)
		}
	}
	return failures
}
