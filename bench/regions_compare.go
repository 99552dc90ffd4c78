package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	keptPrefix = "kept-"
	alteredOf  = 100 // one in so many differs

	equalBytes, equalTime     = 0.01, 3.0
	alteredBytes, alteredTime = 1.5*equalBytes + 1.0/alteredOf, 1.5 * equalTime
	handOverLimit             = 2.0 // comparisons
	handOverLook              = 5 * time.Millisecond
)

// The yardstick reads all rows once, and hashes each.
const readAll = `SELECT row_to_json(o)::text FROM objects o WHERE kind = 'pool' AND name LIKE 'kept-%'`

// alter changes copies by hand, at random, and nothing else shows it.
const alter = `UPDATE copies SET spec = spec || '{"maxReplicas": 9}' WHERE uid IN (
	SELECT uid FROM copies WHERE kind = 'pool' AND name LIKE 'kept-%' ORDER BY random() LIMIT $1)`

// mirrored is regions of which one compares what it has of another one's objects with it.
type mirrored struct {
	*sharing
	at   *member // that compares
	all  float64 // bytes of all objects as JSON lines
	wire map[bool][]float64
}

// measureComparison compares copies that are equal, and some that are not, with their owner.
func measureComparison(ctx context.Context, l *lab) ([]figure, error) {
	s, err := l.startSharing(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	peaks, err := servers(s.all())
	if err != nil {
		return nil, err
	}
	l.say("seeding %d pools …", l.objects)
	c := &mirrored{sharing: s, at: s.others[0], wire: map[bool][]float64{}}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	var equal, altered, moved series
	memory, err := highest(peaks, func() (err error) {
		l.say("comparing what is equal …")
		if equal, err = l.inTurn(ctx, c.compare(0), c.hashed); err != nil {
			return err
		}
		l.say("comparing with 1 %% altered …")
		if altered, err = l.inTurn(ctx, c.compare(l.objects/alteredOf), c.hashed); err != nil {
			return err
		}
		l.say("handing over …")
		moved, err = l.inTurn(ctx, c.handOver, c.alone)
		return err
	})
	objects := strconv.Itoa(l.objects)
	return []figure{
		{name: "comparison: " + objects + " equal objects, bytes between the regions", unit: "MB", series: c.bytes(false), limit: equalBytes},
		{name: "comparison: " + objects + " equal objects, time", unit: "s", series: equal, limit: equalTime},
		{name: "comparison: with 1 % altered, bytes between the regions", unit: "MB", series: c.bytes(true), limit: alteredBytes},
		{name: "comparison: with 1 % altered, time", unit: "s", series: altered, limit: alteredTime},
		{name: "comparison: writes rejected by a hand-over over " + objects + " objects, against a comparison", unit: "s", series: moved, limit: handOverLimit},
		memoryFigure("comparison", "a comparison", memory),
	}, err
}

// prepare has all objects in all regions, each comparison that was due at the start ended, and the objects' size known.
func (c *mirrored) prepare(ctx context.Context) error {
	if err := seed(ctx, c.owner.db, keptPrefix, c.l.objects, owningRegion, "us", "ap"); err != nil {
		return err
	}
	if err := c.copied(ctx, keptPrefix, c.l.objects); err != nil {
		return err
	}
	for _, m := range c.sharing.all() {
		if err := awaited(ctx, "nothing is compared in "+m.name, func(ctx context.Context) (bool, error) {
			n, err := m.count(ctx, `SELECT count(*) FROM region_syncs WHERE ended_at IS NULL OR wanted > pass`)
			return n == 0, err
		}); err != nil {
			return err
		}
		if _, err := m.db.Exec(ctx, "VACUUM ANALYZE"); err != nil {
			return fmt.Errorf("prepare the tables: %w", err)
		}
	}
	var err error
	c.all, err = c.lines(ctx)
	return err
}

// lines is the size of all objects as they are sent in a snapshot.
func (c *mirrored) lines(ctx context.Context) (size float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(c.owner.doc.API, "/")+"/api/v1/watch?kind=pool", nil)
	if err != nil {
		return 0, fmt.Errorf("watch the owner: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.owner.doc.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("watch the owner: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("watch the owner: it answers %s", res.Status)
	}
	lines, count := bufio.NewReader(res.Body), 0
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("read the snapshot: %w", err)
		}
		var line api.WatchLine
		if err := json.Unmarshal(text, &line); err != nil {
			return 0, fmt.Errorf("read the snapshot: %w", err)
		}
		switch line.Type {
		case api.WatchObject:
			size, count = size+float64(len(text)), count+1
		case api.WatchSnapshotSize:
			if count < c.l.objects {
				return 0, fmt.Errorf("the snapshot has %d objects", count)
			}
			return size, nil
		}
	}
}

// compare alters some copies, and gives the seconds until they are compared and mended.
func (c *mirrored) compare(altered int) turn {
	return func(ctx context.Context, _ int) (float64, error) {
		if altered > 0 {
			if _, err := c.at.db.Exec(ctx, alter, altered); err != nil {
				return 0, fmt.Errorf("alter copies: %w", err)
			}
		}
		before, err := c.brought(ctx)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := c.sync(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		after, err := c.brought(ctx)
		if err != nil {
			return 0, err
		}
		c.wire[altered > 0] = append(c.wire[altered > 0], (after-before)/megabyte)
		left, err := c.at.count(ctx, `SELECT count(*) FROM copies WHERE kind = 'pool' AND name LIKE 'kept-%' AND spec <> '{"maxReplicas": 3}'`)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d altered copies were not found", left)
		}
		return took.Seconds(), err
	}
}

// handOver hands the project over, and gives the seconds from the request until the new owner accepts a write.
func (c *mirrored) handOver(ctx context.Context, _ int) (float64, error) {
	took, err := c.handTo(ctx, c.owner, c.at)
	if err == nil {
		_, err = c.handTo(ctx, c.at, c.owner)
	}
	return took.Seconds(), err
}

func (c *mirrored) handTo(ctx context.Context, from, to *member) (took time.Duration, err error) {
	holder := fleet.ObjectKey{Kind: fleet.KindProject, Name: sharedProject}
	once, err := api.NewClient(to.doc.API, to.doc.Token, api.WithPauses()) // its pauses are none of the hand-over's time
	if err != nil {
		return 0, err
	}
	began := time.Now()
	asked, err := from.api.HandOver(ctx, holder, api.HandOverRequest{To: to.name}, api.Mutation{})
	if err != nil {
		return 0, err
	}
	others := []string{to.name}
	for _, m := range c.sharing.all() {
		if m != to {
			others = append(others, m.name)
		}
	}
	for refused := true; refused; {
		err := enable(ctx, once, others...)
		if refused = slices.Contains([]fleet.Kind{fleet.NotOwner, fleet.Unavailable}, fleet.KindOf(err)); err != nil && !refused {
			return 0, err
		}
		took = time.Since(began)
		if err := pause.For(ctx, handOverLook); err != nil {
			return 0, err
		}
	}
	return took, from.ended(ctx, *asked.Operation)
}

// alone gives the seconds of a comparison of what is equal.
func (c *mirrored) alone(ctx context.Context, _ int) (float64, error) {
	began := time.Now()
	err := c.sync(ctx)
	return time.Since(began).Seconds(), err
}

// sync asks for a comparison, and waits until it has ended.
func (c *mirrored) sync(ctx context.Context) error {
	asked, err := c.at.api.SyncRegion(ctx, owningRegion, api.RegionSync{}, api.Mutation{})
	if err != nil {
		return err
	}
	return c.at.ended(ctx, *asked.Operation)
}

// ended waits until an operation has succeeded.
func (m *member) ended(ctx context.Context, op api.Operation) (err error) {
	for !op.State.Ended() {
		if op, err = m.api.Operation(ctx, op.ID, waitEnd); err != nil {
			return err
		}
	}
	if op.State != fleet.OperationSucceeded {
		return fmt.Errorf("%s %s: %s %s", op.Kind, op.State, op.Reason, op.Message)
	}
	return nil
}

// brought is how many bytes went between the two regions so far, in both directions and with all that TLS adds.
func (c *mirrored) brought(ctx context.Context) (float64, error) {
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", filepath.Join(c.region.dir, "control.sock"))
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://control/links", nil)
	if err != nil {
		return 0, fmt.Errorf("ask how much was sent: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask how much was sent: %w", err)
	}
	defer res.Body.Close()
	var links []struct {
		From, To string
		Bytes    int64
	}
	if err := json.NewDecoder(res.Body).Decode(&links); err != nil {
		return 0, fmt.Errorf("ask how much was sent: %w", err)
	}
	total := int64(0)
	for _, l := range links {
		if l.From+l.To == owningRegion+c.at.name || l.To+l.From == owningRegion+c.at.name {
			total += l.Bytes
		}
	}
	return float64(total), nil
}

// bytes are those of each round, against those of all objects.
func (c *mirrored) bytes(altered bool) (s series) {
	s.ours = c.wire[altered]
	for range s.ours {
		s.plain = append(s.plain, c.all/megabyte)
	}
	return s
}

// hashed is the time in seconds to read and hash all objects once, at their owner.
func (c *mirrored) hashed(ctx context.Context, _ int) (float64, error) {
	began := time.Now()
	rows, err := c.owner.db.Query(ctx, readAll)
	if err != nil {
		return 0, fmt.Errorf("read all objects: %w", err)
	}
	defer rows.Close()
	count, hashes := 0, map[[sha256.Size]byte]bool{}
	for ; rows.Next(); count++ {
		var text string
		if err := rows.Scan(&text); err != nil {
			return 0, fmt.Errorf("read all objects: %w", err)
		}
		hashes[sha256.Sum256([]byte(text))] = true
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("read all objects: %w", err)
	}
	if len(hashes) != c.l.objects {
		return 0, fmt.Errorf("read %d objects, of which %d differ", count, len(hashes))
	}
	return time.Since(began).Seconds(), nil
}
