package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

const (
	executeLimit   = 2.0 // ms above a bare call, p50
	executeMembers = 2
	executeTimes   = 5 // n are a round
	executeInput   = `{"image":"0123456789abcdef","size":640,"labels":["cup","plate"],"threshold":0.5}`
	executeSchema  = `{"type":"object","required":["image","size"],"additionalProperties":false,"properties":{
		"image":{"type":"string","minLength":1},"size":{"type":"integer","minimum":1},
		"labels":{"type":"array","items":{"type":"string"}},"threshold":{"type":"number","maximum":1}}}`
)

// benchExecutor answers what it is given.
type benchExecutor struct {
	nodev1.UnimplementedExecutorServer
}

// Execute is as cheap as a module can be.
func (benchExecutor) Execute(_ context.Context, in *nodev1.ExecuteRequest) (*nodev1.ExecuteResponse, error) {
	return &nodev1.ExecuteResponse{Output: in.GetInput()}, nil
}

// measureExecute runs a module of two members through the API, with the schemas of input and
// output checked, against a bare gRPC call to one of them.
func measureExecute(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	stop, address, err := r.executors(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial the executor: %w", err)
	}
	defer conn.Close() //nolint:errcheck // it was only used
	e := executeRun{region: r, http: &http.Client{}, bare: nodev1.NewExecutorClient(conn)}
	defer e.http.CloseIdleConnections()
	var all, bares []time.Duration
	n := executeTimes * l.n
	through, bare := typical(n, &all, timed(e.once)), typical(n, &bares, timed(e.directly))
	for _, warm := range []turn{through, bare} {
		if _, err := warm(ctx, 0); err != nil {
			return nil, err
		}
	}
	s, err := l.inTurn(ctx, through, bare)
	if err != nil {
		return nil, err
	}
	return []figure{{
		name: "execute: above a bare gRPC call, p50", unit: "ms", series: s, by: byDifference, limit: executeLimit,
		note: fmt.Sprintf("p99 %s", millis(quantile(all, 0.99))),
	}}, nil
}

// executors serves and registers the members; the address is that of the last.
func (r *region) executors(ctx context.Context) (stop func(), address string, err error) {
	db, err := r.postgres(ctx)
	if err != nil {
		return nil, "", err
	}
	defer db.Close(ctx) //nolint:errcheck // it was only written to
	var servers []*grpc.Server
	stop = func() {
		for _, s := range servers {
			s.Stop()
		}
	}
	for i := range executeMembers {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, "", fmt.Errorf("listen: %w", err)
		}
		s := grpc.NewServer()
		nodev1.RegisterExecutorServer(s, benchExecutor{})
		servers = append(servers, s)
		go func() { _ = s.Serve(listener) }() // it ends with Stop
		address = listener.Addr().String()
		if err := registerExecutor(ctx, db, i, address); err != nil {
			stop()
			return nil, "", err
		}
	}
	return stop, address, nil
}

// registerExecutor writes what a registration would.
func registerExecutor(ctx context.Context, db *pgx.Conn, i int, address string) error {
	id := fmt.Sprintf("%032d", i)
	_, err := db.Exec(ctx, `INSERT INTO connections (id, state, identity, provider, module_namespace, group_id, executor, protocol, server, active_at)
		SELECT $1, 'Active', 'token:bench', 'bench-' || $1, 'bench', 'bench', $2, 1, coalesce((SELECT id FROM servers LIMIT 1), 'bench'), now()`, id, address)
	if err == nil {
		_, err = db.Exec(ctx, `INSERT INTO modules (connection, module_namespace, name, input_schema, output_schema)
			VALUES ($1, 'bench', 'Echo', $2, $2)`, id, executeSchema)
	}
	if err != nil {
		return fmt.Errorf("register an executor: %w", err)
	}
	return nil
}

type executeRun struct {
	region *region
	http   *http.Client
	bare   nodev1.ExecutorClient
}

func (e executeRun) directly(ctx context.Context) error {
	if _, err := e.bare.Execute(ctx, &nodev1.ExecuteRequest{Module: "Echo", Input: []byte(executeInput)}); err != nil {
		return fmt.Errorf("call the executor: %w", err)
	}
	return nil
}

func (e executeRun) once(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(e.region.doc.API, "/")+"/api/v1/modules/bench.Echo/execute",
		strings.NewReader(executeInput))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+e.region.doc.Token)
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("executing was answered %d: %.300s", resp.StatusCode, body)
	case !bytes.Equal(body, []byte(executeInput)):
		return errors.New("the answer is another one's")
	}
	return nil
}
