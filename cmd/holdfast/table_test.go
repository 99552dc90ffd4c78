package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn writes a table of some lines.
func drawn(t require.TestingT, header []string, rows ...[]string) string {
	var out bytes.Buffer
	table := newTable(header)
	for _, row := range rows {
		table.add(row)
	}
	require.NoError(t, table.write(&out))
	return out.String()
}

// fits checks that no line is longer than a terminal, and that nothing of the cells is missing.
func fits(t require.TestingT, out string, rows ...[]string) {
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), lineWidth, line)
	}
	flat := strings.Join(strings.Fields(out), "")
	for _, row := range rows {
		for _, cell := range row {
			require.Contains(t, flat, strings.Join(strings.Fields(clean(cell)), ""))
		}
	}
}

// X19: tables fit a terminal of 120 columns.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	const (
		id      = "01a222e31939277c3769ab0609b0e038"
		actor   = "token:continuous-delivery@01a222e30f2072e6"
		message = "1 of 12 replicas are healthy; replica 0af3c21b9d44 on frankfurt-plant-1-a must be healthy by 2026-03-01T12:01:00Z, " +
			"GET /health on 10.128.14.201:31000: connection refused, 12 times since 2026-03-01T11:58:00Z"
		at = "2026-03-01T12:00:00Z"
	)
	for name, c := range map[string]struct{ header, cells []string }{
		"get instances": {instanceHeader, []string{
			"frankfurt-plant-1/hydraulic-press-7", "Progressing", "pending_restart", "yes", "1042", "1043", "1/2", "frankfurt-plant-1-a", "ce0d5072447d", "59m",
		}},
		"get deployments": {deploymentHeader, []string{
			"checkout-service-europe", "payments-of-europe", "process", "PROVISIONING", "pending_restart", "yes", "12/24", "1042", "waits_for_a_replica", "272d", "272d",
		}},
		"get replicas": {replicaHeader, []string{
			"checkout-service-europe/0af3c21b9d44", "frankfurt-plant-1-a", "STARTING", "HEALTHY, not ready", "1042", "10.128.14.201:31000", "12",
			"health_check_failed", "59m", "272d",
		}},
		"explain, replicas": {append(replicaHeader[:len(replicaHeader):len(replicaHeader)], "MESSAGE"), []string{
			"0af3c21b9d44", "frankfurt-plant-1-a", "STARTING", "NOT_CHECKED", "1042", "10.128.14.201:31000", "12", "exited", "59m", "272d", message,
		}},
		"get nodes": {nodeHeader, []string{
			"frankfurt-plant-1-a", "frankfurt-plant-1", "standby", "1042", "not enrolled, draining", "10000", "10000", "12", "59m",
			"Disconnected 59m, 1200 in flight", "new key offered", "uid",
		}},
		"get sites": {[]string{"NAME", "PROJECT", "NODES", "ACTIVE", "EPOCH", "LEASE", "ISOLATION", "GENERATION", "UPDATED"}, []string{
			"frankfurt-plant-1", "payments-of-europe", "frankfurt-plant-1-a,frankfurt-plant-1-b", "frankfurt-plant-1-a", "1042", "held, 14s left", "uid", "12", "272d",
		}},
		"get pools": {poolHeader, []string{
			"accelerated", "payments-of-europe", "frankfurt-plant-1,frankfurt-plant-2,lyon-plant-1", "frankfurt-plant-1-a,frankfurt-plant-1-b", "gpu=h100,line=a", "12", "3", "272d",
		}},
		"get operations": {operationHeader, []string{
			id, "rollback", "deployment/checkout-service-europe", "superseded", "progress_deadline_exceeded", "1042", actor, "59m", "59m",
		}},
		"rollout history": {rolloutHeader, []string{
			"12", "ROLLED_BACK", "3/5", "1041", "1042", "24", "12", "3600s", "progress_deadline_exceeded", message, at, "59m", "59m",
		}},
		"deliveries": {deliveryHeader, []string{
			id, "12", "rollback", "1041 -> 1042", "12 -> 13", "ce0d5072447d", "unknown (settled as applied)", "not_replicated",
			"frankfurt-plant-1-a:applied,frankfurt-plant-1-b:delivering", actor, "ticket 4711: " + message, "59m", "59m",
		}},
		"explain, nodes": {[]string{"NODE", "SITE", "CPU FREE", "OF", "MEMORY FREE", "OF", "GPUS FREE", "REPLICAS", "OWN", "WHY NOT", "MESSAGE"}, []string{
			"frankfurt-plant-1-a", "frankfurt-plant-1", "127.75", "128", "1023.9 GiB", "1024.0 GiB", "8", "1200", "12", "no_room", "less than 2 cores are free",
		}},
		"explain, decisions": {[]string{"AT", "TIMES", "REPLICA", "NODE", "FROM", "TO", "REASON", "MESSAGE", "BY"}, []string{
			at, "1200", "0af3c21b9d44", "frankfurt-plant-1-a", "STARTING", "UNHEALTHY", "health_check_failed", message, actor,
		}},
		"conditions": {[]string{"CONDITION", "STATUS", "REASON", "MESSAGE", "SINCE"}, []string{"available", "false", "not_enough_replicas", message, at}},
		"fleet targets": {fleetTargetHeader, []string{
			"frankfurt-plant-1/hydraulic-press-7", "12", "superseded", "1042", "1041", "12", "not_replicated", message, "59m",
		}},
		"fleet runs": {fleetRunHeader, []string{"12", "13", "11", "ROLLED_BACK", "error_threshold", "3/12", "10000/10000", "1200", actor, at, at}},
		"get fleets": {fleetHeader, []string{"speed-up-of-all-presses", "payments-of-europe", "RollingBack", "rolled_back", "12", "3/12", "10000/10000", "1200", "error_threshold", "13", "272d"}},
		"get providers": {providerHeader, []string{
			id, "vision-of-frankfurt", "spiffe://example/provider", "acme.vision", "gpu", "10.128.14.201:9092", "Draining", "59m", "1200", at + " (in_flight)", "01a222e3",
		}},
		"get refusals": {refusalHeader, []string{at, "link", "frankfurt-plant-1-a", "certificate_expired", message, "frankfurt", "1200"}},
		"get regions": {regionHeader, []string{
			"frankfurt", "Frankfurt am Main, Germany", "https://frankfurt.holdfast.example:7461", "this region, to compare with lyon, oslo", "59m", "1200.5s",
			"100000, 1200 waiting", "lyon", "certificate expired at " + at,
		}},
		"sync status": {syncHeader, []string{"frankfurt", "comparing 12 of 256", "1200.5s", "100000", "12", "100000", "1200", "1200", "1200", "12", "59m"}},
		"orphans":     {orphanHeader, []string{"replica/0af3c21b9d44", "checkout-service-europe", "running", "1042", "12", "ce0d5072447d", "never_known", "59m", at + " by " + actor}},
		"events":      {eventHeader, []string{"12.34567.890", at, "deployment.updated", "deployment", "checkout-service-europe", "1042", actor, message}},
		"tokens":      {[]string{"ID", "ROLE", "PROJECT", "NOTE", "BY", "CREATED", "EXPIRES", "STATE"}, []string{id, "operator", "payments-of-europe", message, actor, at, at, "expired"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, c.cells, len(c.header))
			short := make([]string, len(c.cells))
			out := drawn(t, c.header, c.cells, short)
			fits(t, out, c.cells)
			lines := strings.Split(out, "\n")
			require.True(t, strings.HasPrefix(lines[0], c.header[0]))
			require.True(t, strings.HasPrefix(lines[1], c.cells[0]))
			require.True(t, strings.HasPrefix(lines[len(lines)-2], "-"), "a line without long cells is one line")

			var stream bytes.Buffer
			var arriving columns
			arriving.print(&stream, c.header, short)
			arriving.print(&stream, c.header, c.cells)
			fits(t, stream.String(), c.cells)
		})
	}
}

// X19: what people see daily fits without a second line.
func TestTablesAreOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, cells []string }{
		{deploymentHeader, []string{"web", "default", "process", "PROVISIONING", "rolling_out", "yes", "1/2", "12", "replicas_starting", "59m", "59m"}},
		{replicaHeader, []string{"web/0af3c21b9d44", "plant-1-a", "STARTING", "NOT_CHECKED", "12", "127.0.0.1:23243", "1", "exited", "59m", "59m"}},
		{nodeHeader, []string{"plant-1-a", "plant-1", "standby", "12", "no, draining", "100", "12", "1", "59m", "Disconnected 59m", "59m", "uid"}},
		{instanceHeader, []string{"plant-1/press-7", "Progressing", "rolling_out", "yes", "12", "13", "1/2", "plant-1-a", "ce0d5072447d", "59m"}},
		{operationHeader, []string{"01a222e31939277c3769ab0609b0e038", "converge", "deployment/web", "succeeded", "deployed", "12", "token:admin", "59m", "59m"}},
		{rolloutHeader, []string{"12", "DEPLOYING", "1/2", "11", "12", "2", "1", "10s", "surge", "", "2026-03-01T12:00:00Z", "59m", ""}},
	} {
		require.Equal(t, 2, strings.Count(drawn(t, c.header, c.cells), "\n"), "%v", c.header)
	}
}

// X19: whatever the cells, lines fit and nothing is lost.
func TestAnyTableFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.StringMatching(`[a-z0-9 ./-]{0,60}|[a-z]{0,300}`)
		header := append([]string{"NAME"}, rapid.SliceOfN(rapid.StringMatching(`[A-Z]{2,12}`), 0, 15).Draw(t, "header")...)
		var rows [][]string
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			rows = append(rows, append([]string{rapid.StringMatching(`[a-z0-9-]{1,110}`).Draw(t, "name")},
				rapid.SliceOfN(cell, len(header)-1, len(header)-1).Draw(t, "cells")...))
		}
		fits(t, drawn(t, header, rows...), rows...)
	})
}
