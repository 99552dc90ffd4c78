//go:build slow

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

func isCut(s *api.RegionStatus) bool       { return s != nil && !s.Reachable && s.Problem != "" }
func isForgotten(s *api.RegionStatus) bool { return s == nil }

// link is temporal-dev cut and heal.
func (m *mesh) link(t *testing.T, args ...string) {
	t.Helper()
	var out bytes.Buffer
	require.Equal(t, exitOK, run(append(args, "--data", m.data), &out, &out), "%s", &out)
}

func (m *mesh) peersURL(t *testing.T, region string) string {
	t.Helper()
	status, err := m.status(t.Context(), region, region)
	require.NoError(t, err)
	return status.Address
}

func (m *mesh) invite(t *testing.T, at, region string) string {
	t.Helper()
	token, err := m.regions[at].api.InviteRegion(t.Context(), api.RegionInvitation{Name: region}, api.Mutation{})
	require.NoError(t, err)
	return token.Token
}

func (m *mesh) join(ctx context.Context, region, address, token string) error {
	_, err := m.regions[region].api.JoinRegion(ctx, api.RegionJoin{Address: address, Token: token}, api.Mutation{})
	return err
}

// remove has all other regions forget one.
func (m *mesh) remove(t *testing.T, name string) {
	t.Helper()
	for other, s := range m.regions {
		if other == name {
			continue
		}
		_, err := s.api.RemoveRegion(t.Context(), name, api.Mutation{})
		require.NoError(t, err)
		m.waits(t, "forgotten", other, name, isForgotten)
		m.waits(t, "refused", name, other, func(s *api.RegionStatus) bool { return s != nil && strings.HasPrefix(s.Problem, "removed: ") })
	}
}

// followsAll reports each region that does not reach all others, or does not have what they share: of N regions there are N-1 watches in
// each, N(N-1) in all.
func (m *mesh) followsAll(t *testing.T) {
	t.Helper()
	watches := 0
	for at := range m.regions {
		for of := range m.regions {
			if at == of {
				continue
			}
			status, err := m.status(t.Context(), at, of)
			require.NoError(t, err)
			require.NotNil(t, status, "%s knows %s", at, of)
			require.True(t, status.Reachable, "%s reaches %s", at, of)
			require.NotNil(t, status.Followed, "%s follows %s", at, of)
			require.NotNil(t, status.Followed.LagSeconds, "%s has what %s shares", at, of)
			watches++
		}
	}
	require.Equal(t, len(m.regions)*(len(m.regions)-1), watches)
}

// M14, M15, M30, M46, X23: three complete regions that joined through one of them, in processes of their own.
func TestE2ERegions(t *testing.T) {
	t.Parallel()
	m := startMesh(t, 3)
	m.followsAll(t) // as soon as it is up
	m.meshed(t)
	t.Run("are listed by the command line", func(t *testing.T) {
		for at, s := range m.regions {
			out, _ := newCLI(t, s).call(t, cliOK, "get", "regions")
			for _, name := range regionNames {
				require.Contains(t, out, name, at)
			}
			require.Contains(t, out, "this region")
			var doc regionsDoc
			require.NoError(t, readJSON(filepath.Join(m.data, devFile), &doc))
			require.Len(t, doc.Regions, 3)
		}
		_, err := callControl(t.Context(), m.data, http.MethodPost, "/processes/ap%2Fplant-1-b/stop")
		require.NoError(t, err)
		_, err = callControl(t.Context(), m.data, http.MethodPost, "/processes/ap%2Fplant-1-b/start")
		require.NoError(t, err)
	})
	t.Run("tell each other of themselves", func(t *testing.T) { // M46
		m.waits(t, "its builds are known", "us", "eu", func(s *api.RegionStatus) bool { return s != nil && len(s.Builds) == 1 && !s.Upgrading })
		o, _, err := m.regions["us"].api.Object(t.Context(), fleet.RegionKey("eu"))
		require.NoError(t, err)
		var spec fleet.RegionSpec
		require.NoError(t, json.Unmarshal(o.Spec, &spec))
		require.Equal(t, fleet.RegionVersion{API: "v1", Data: postgres.SchemaVersion()}, spec.Version)
	})
	t.Run("cut and heal", m.cutsAndHeals)
	t.Run("disable and enable", m.disables)
	t.Run("used, expired and foreign tokens", m.badTokens)
	t.Run("forged records", m.forgeries)
	t.Run("remove, and join again through killed servers", m.killedJoins)
	t.Run("another key under a known name", m.otherKey)
}

// M18, M20, M21, M34, X23: the same three regions share what they have. They have a mesh of their own, since each of both tests takes long.
func TestE2ERegionsShare(t *testing.T) {
	t.Parallel()
	m := startMesh(t, 3)
	m.meshed(t)
	t.Run("share a project", m.shares)
	t.Run("compare their copies", m.compares)
	t.Run("use templates of each other", m.usesTemplates)
	t.Run("hand a project over, and back", m.handsOver)
}

func (m *mesh) cutsAndHeals(t *testing.T) {
	m.link(t, "cut", "eu", "us")
	m.waits(t, "unreachable", "eu", "us", isCut)
	m.waits(t, "unreachable", "us", "eu", isCut)
	m.waits(t, "reachable", "ap", "us", isReached)
	m.waits(t, "reachable", "ap", "eu", isReached)
	m.link(t, "heal", "eu", "us")
	m.meshed(t)
	m.link(t, "cut", "us", "ap", "--one-way")
	m.waits(t, "unreachable", "us", "ap", isCut)
	m.waits(t, "unreachable", "ap", "us", isCut)
	m.waits(t, "reachable", "eu", "us", isReached)
	var out bytes.Buffer
	require.Equal(t, exitFailed, run([]string{"heal", "eu", "us", "--data", m.data}, &out, &out))
	require.Contains(t, out.String(), "eu to us is not cut")
	m.link(t, "heal", "us", "ap", "--one-way")
	m.meshed(t)
}

func (m *mesh) disables(t *testing.T) {
	eu := newCLI(t, m.regions["eu"])
	eu.call(t, cliOK, "region", "disable", "us")
	m.waits(t, "disabled", "eu", "us", func(s *api.RegionStatus) bool { return s != nil && s.Disabled && !s.Reachable })
	m.waits(t, "refused", "us", "eu", func(s *api.RegionStatus) bool { return s != nil && strings.HasPrefix(s.Problem, "disabled: ") })
	m.waits(t, "reachable", "ap", "us", isReached)
	m.refused(t, "eu", "disabled", "region:us")
	eu.call(t, cliOK, "region", "enable", "us")
	m.meshed(t)
}

// refused waits for a row of the refusals.
func (m *mesh) refused(t *testing.T, at, reason, identity string) {
	t.Helper()
	waitFor(t, at+" records a refusal "+reason+" of "+identity, func(ctx context.Context) error {
		all, err := m.regions[at].api.Refusals(ctx, api.Page{Limit: 1000})
		if err == nil && !slices.ContainsFunc(all.Items, func(r api.Refusal) bool { return r.Reason == reason && r.Identity == identity }) {
			err = errNotYet
		}
		return err
	})
}

func (m *mesh) badTokens(t *testing.T) {
	eu := m.peersURL(t, "eu")
	made, err := m.regions["eu"].api.InviteRegion(t.Context(), api.RegionInvitation{Name: "us", Seconds: 1}, api.Mutation{})
	require.NoError(t, err)
	expired := made.Token
	waitFor(t, "the invitation expires", func(ctx context.Context) error {
		n, err := m.regions["eu"].count(ctx, `SELECT count(*) FROM region_invitations WHERE id = $1 AND expires_at > now()`, made.ID)
		if err == nil && n > 0 {
			err = errNotYet
		}
		return err
	})
	used := m.invite(t, "eu", "us")
	require.NoError(t, m.join(t.Context(), "us", eu, used), "a known region may join again")
	for name, token := range map[string]string{
		"expired": expired, "of another region": m.invite(t, "us", "ap"), "for another region": m.invite(t, "eu", "br"), "none": "x",
	} {
		err := m.join(t.Context(), "us", eu, token)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), token+" ", name)
	}
	err = m.join(t.Context(), "ap", eu, used)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
	m.meshed(t)
}

// regionKey is the key of a region, which only a thief of its database has.
func (m *mesh) regionKey(t *testing.T, region string) ed25519.PrivateKey {
	t.Helper()
	var seed []byte
	require.NoError(t, m.regions[region].pg.QueryRow(t.Context(), `SELECT secret FROM region_secrets WHERE name = 'region-key'`).Scan(&seed))
	return ed25519.NewKeyFromSeed(seed)
}

// call calls a region's peer listener with any key and record.
func (m *mesh) call(t *testing.T, at string, key ed25519.PrivateKey, record fleet.MemberRecord) (int, string) {
	t.Helper()
	raw, err := json.Marshal(record)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.peersURL(t, at)+"/peer/v1/members", nil)
	require.NoError(t, err)
	req.Header.Set("Holdfast-Region", base64.StdEncoding.EncodeToString(raw))
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func (m *mesh) forgeries(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	fresh := func(name fleet.RegionName) fleet.MemberRecord {
		return fleet.MemberRecord{
			Name: name, Key: key.Public().(ed25519.PublicKey), Number: 9, Address: "https://127.0.0.1:1", AddressNumber: 1,
		}.SignAddress(key)
	}
	before := m.peersOf(t, "eu")
	for name, r := range map[string]fleet.MemberRecord{
		"no record":                 {},
		"signed by itself":          fresh("br").SignAdmission("br", key),
		"signed in another's name":  fresh("br").SignAdmission("us", key),
		"a known name":              fresh("ap").SignAdmission("us", m.regionKey(t, "us")),
		"the called region's name":  fresh("eu").SignAdmission("us", m.regionKey(t, "us")),
		"another address's signing": func() fleet.MemberRecord { r := fresh("br"); r.Address = "https://127.0.0.1:2"; return r }(),
	} {
		code, body := m.call(t, "eu", key, r)
		require.Equal(t, http.StatusUnauthorized, code, name)
		require.Contains(t, body, "unknown_key", name)
	}
	require.Equal(t, before, m.peersOf(t, "eu"))
	log, err := os.ReadFile(filepath.Join(m.data, "eu", "logs", serverName+".log"))
	require.NoError(t, err)
	for _, reason := range []string{"other_key", "bad_signature", "bad_record"} {
		require.Contains(t, string(log), reason)
		m.refusedBy(t, "eu", reason)
	}
	require.Contains(t, string(log), "alarm: ")
}

func (m *mesh) refusedBy(t *testing.T, at, reason string) {
	t.Helper()
	waitFor(t, at+" records a refusal "+reason, func(ctx context.Context) error {
		n, err := m.regions[at].count(ctx, `SELECT count(*) FROM refusals WHERE door = 'region' AND reason = $1`, reason)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
}

// peersOf are the rows of a region's members, without what calls change.
func (m *mesh) peersOf(t *testing.T, region string) (rows string) {
	t.Helper()
	require.NoError(t, m.regions[region].pg.QueryRow(t.Context(),
		`SELECT string_agg(name || encode(public_key, 'hex') || number || address, ';' ORDER BY name) FROM peers`).Scan(&rows))
	return rows
}

// killedJoins has the server of either side die in the middle of a join: the same token works once it is back.
func (m *mesh) killedJoins(t *testing.T) {
	for _, at := range []struct{ region, step string }{{"ap", "region_admitted"}, {"us", "region_answered"}} {
		m.remove(t, "us")
		address, token := m.peersURL(t, "ap"), m.invite(t, "ap", "us")
		fired := m.regions[at.region].arm(t, at.region+"/"+serverName, at.step)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_ = m.join(ctx, "us", address, token) // it, or a repeat by the client, meets the killed server
		cancel()
		waitFor(t, at.region+" was killed", func(context.Context) error { return unless(fired()) })
		waitFor(t, "us joins again", func(ctx context.Context) error { return m.join(ctx, "us", address, token) })
		m.meshed(t)
	}
}

// otherKey has a region that was set up anew join under its old name: only once all others have removed it.
func (m *mesh) otherKey(t *testing.T) {
	us := m.regions["us"]
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed)
	_, err := us.pg.Exec(t.Context(), `UPDATE region_secrets SET secret = $1 WHERE name = 'region-key'`, seed)
	require.NoError(t, err)
	_, err = us.pg.Exec(t.Context(), `DELETE FROM peers`)
	require.NoError(t, err)
	us.kill(t, "us/"+serverName)
	eu := m.peersURL(t, "eu")
	waitFor(t, "eu refuses the new key", func(ctx context.Context) error {
		err := m.join(ctx, "us", eu, m.invite(t, "eu", "us"))
		if fleet.KindOf(err) == fleet.Conflict && strings.Contains(err.Error(), "known with another key") {
			return nil
		}
		return fmt.Errorf("%w: %w", errNotYet, err)
	})
	m.refused(t, "eu", "other_key", "?region:us")
	for _, at := range []string{"eu", "ap"} {
		_, err := m.regions[at].api.RemoveRegion(t.Context(), "us", api.Mutation{})
		require.NoError(t, err)
	}
	var invitation api.Token // as an operator would
	newCLI(t, m.regions["eu"]).json(t, &invitation, cliOK, "region", "invite", "us", "--ttl", "5m")
	out, _ := newCLI(t, us).call(t, cliOK, "region", "join", eu, "--token", invitation.Token)
	require.Contains(t, out, "eu")
	require.NotContains(t, out, invitation.Token)
	m.meshed(t)
}
