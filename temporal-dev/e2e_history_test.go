//go:build slow

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/fleet"
	nodekeys "github.com/holdfast-io/holdfast/internal/identity"
)

// temporalLimit is the most that anything in Temporal may have (X9).
const temporalLimit = 64 << 10

// flow is one workflow run with its whole history.
type flow struct {
	id, kind string
	events   []*historypb.HistoryEvent
}

// histories reads every run that Temporal has, closed ones too.
func (s *stack) histories(t *testing.T) []flow {
	t.Helper()
	var runs []flow
	var next []byte
	for first := true; first || len(next) > 0; first = false {
		page, err := s.temporal.ListWorkflowExecutions(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: temporalNamespace, PageSize: 500, NextPageToken: next,
		})
		require.NoError(t, err)
		next = page.GetNextPageToken()
		for _, e := range page.GetExecutions() {
			runs = append(runs, flow{
				id: e.GetExecution().GetWorkflowId(), kind: e.GetType().GetName(), events: s.events(t, e.GetExecution()),
			})
		}
	}
	return runs
}

func (s *stack) events(t *testing.T, of *commonpb.WorkflowExecution) []*historypb.HistoryEvent {
	t.Helper()
	var events []*historypb.HistoryEvent
	var next []byte
	for first := true; first || len(next) > 0; first = false {
		page, err := s.temporal.GetWorkflowExecutionHistory(t.Context(), &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: temporalNamespace, Execution: of, NextPageToken: next,
		})
		require.NoError(t, err)
		next = page.GetNextPageToken()
		events = append(events, page.GetHistory().GetEvents()...)
	}
	return events
}

// payloads are all that a message carries, however deep.
func payloads(t *testing.T, of proto.Message) []*commonpb.Payload {
	t.Helper()
	var all []*commonpb.Payload
	require.NoError(t, proxy.VisitPayloads(context.Background(), proto.Clone(of), proxy.VisitPayloadsOptions{
		Visitor: func(_ *proxy.VisitPayloadsContext, some []*commonpb.Payload) ([]*commonpb.Payload, error) {
			all = append(all, some...)
			return some, nil
		},
	}))
	return all
}

// requireSmall checks that no event and no payload of any run is above the limit (X9), and
// that no payload is coded so that a search would miss what it says.
func requireSmall(t *testing.T, runs []flow) {
	t.Helper()
	for _, r := range runs {
		require.Less(t, len(r.id), 200, r.id)
		for _, e := range r.events {
			require.LessOrEqual(t, proto.Size(e), temporalLimit, "%s %s", r.id, e.GetEventType())
			for _, p := range payloads(t, e) {
				require.LessOrEqual(t, proto.Size(p), temporalLimit, "%s %s", r.id, e.GetEventType())
				if strings.HasPrefix(r.id, "temporal-sys-") {
					continue // Temporal's own scheduler
				}
				require.Contains(t, []string{"json/plain", "json/protobuf", "binary/null", "binary/plain"},
					string(p.GetMetadata()["encoding"]), "%s %s", r.id, e.GetEventType())
			}
		}
	}
}

// mentions says where a text stands in the histories, "" for nowhere.
func mentions(t *testing.T, runs []flow, text string) string {
	t.Helper()
	for _, r := range runs {
		for _, e := range r.events {
			raw, err := proto.Marshal(e)
			require.NoError(t, err)
			if bytes.Contains(raw, []byte(text)) {
				return r.id + " " + e.GetEventType().String()
			}
		}
	}
	return ""
}

// requireNowhere checks that no history, log, report of a metric or row outside the bodies
// holds any of the texts.
func (s *stack) requireNowhere(t *testing.T, runs []flow, texts ...string) {
	t.Helper()
	require.NotEmpty(t, mentions(t, runs, "RefreshDeployment"), "the search finds what is there")
	for _, text := range texts {
		require.Empty(t, mentions(t, runs, text), "it holds a secret")
	}
	logs := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(s.data, "logs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, text := range texts {
			require.False(t, bytes.Contains(raw, []byte(text)), "%s holds a secret", path)
		}
		logs++
		return err
	}))
	require.GreaterOrEqual(t, logs, 5, "temporal, postgres, server and two nodes write logs")
	for _, text := range texts {
		require.False(t, strings.Contains(s.said.String(), text))
	}
	s.requireNotStored(t, texts)
}

// requireNotStored reads every table but those that hold bodies.
func (s *stack) requireNotStored(t *testing.T, texts []string) {
	t.Helper()
	var tables []string
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT array_agg(table_name::text) FROM information_schema.tables
		WHERE table_schema = 'public' AND table_name <> 'body_chunks'`).Scan(&tables))
	require.Contains(t, tables, "fetch_tokens")
	for _, table := range tables {
		for _, text := range texts {
			n, err := s.count(t.Context(), `SELECT count(*) FROM `+table+` t WHERE position($1 in t::text) > 0`, text)
			require.NoError(t, err, table)
			require.Zero(t, n, "table %s holds a secret", table)
		}
	}
}

// fetchTokens opens every sealed token that the histories hold, with the key of its node.
func (s *stack) fetchTokens(t *testing.T, runs []flow) []string {
	t.Helper()
	var tokens []string
	for _, r := range runs {
		for _, e := range r.events {
			scheduled := e.GetActivityTaskScheduledEventAttributes()
			if scheduled.GetActivityType().GetName() != "RefreshDeployment" {
				continue
			}
			node := strings.TrimPrefix(scheduled.GetTaskQueue().GetName(), "node.")
			var cmd fleet.RefreshDeploymentCommand
			require.NoError(t, json.Unmarshal(scheduled.GetInput().GetPayloads()[0].GetData(), &cmd))
			if cmd.Revision.Action == fleet.ActionDelete {
				continue
			}
			key, err := nodekeys.Load(filepath.Join(s.data, "nodes", node, "node.key"))
			require.NoError(t, err)
			token, err := key.Open(cmd.FetchToken)
			require.NoError(t, err)
			require.NotContains(t, tokens, token, "a token is good for one delivery and one node")
			tokens = append(tokens, token)
		}
	}
	return tokens
}
