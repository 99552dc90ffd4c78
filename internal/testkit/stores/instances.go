package stores

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// Stored reports whether a body is stored.
func (b *Bench) Stored(body string) bool {
	b.T.Helper()
	return Scan[bool](b, `SELECT EXISTS (SELECT 1 FROM bodies WHERE hash = sha256(convert_to($1, 'UTF8')))`, body)
}

// Numbers lists the revisions that a table has.
func (b *Bench) Numbers(table string) []int64 {
	b.T.Helper()
	return Scan[[]int64](b, `SELECT coalesce(array_agg(DISTINCT revision ORDER BY revision), '{}') FROM `+table)
}

// WriteOf is a write of an object by ann.
func WriteOf(k fleet.ObjectKey) postgres.Write {
	return postgres.Write{Request: postgres.Request{Project: Project, Actor: "ann", Limit: time.Hour}, Key: k}
}

// JSONOf is a canonical body and the content that names it.
func JSONOf(body string) fleet.Content {
	sum := sha256.Sum256([]byte(body))
	return fleet.Content{Kind: fleet.ContentJSON, Hash: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(len(body))}
}

// ChangeOf is a PUT of the press with a stored body; edits come after the defaults.
func (b *Bench) ChangeOf(body string, edits ...func(*deliveries.InstanceChange)) deliveries.InstanceChange {
	b.T.Helper()
	_, err := b.PutBody(b.Ctx(), Project, []byte(body))
	require.NoError(b.T, err)
	content := JSONOf(body)
	c := deliveries.InstanceChange{
		Write: WriteOf(PressKey), Content: content, Release: true, Reason: "because",
		Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilitySync},
	}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

// TemplateOf is a template with a stored body.
func (b *Bench) TemplateOf(body string) fleet.TemplateSpec {
	b.T.Helper()
	_, err := b.PutBody(b.Ctx(), Project, []byte(body))
	require.NoError(b.T, err)
	return fleet.TemplateSpec{Base: JSONOf(body)}
}

// Put writes the press.
func (b *Bench) Put(body string, edits ...func(*deliveries.InstanceChange)) postgres.Started {
	b.T.Helper()
	out, err := b.PutInstance(b.Ctx(), b.ChangeOf(body, edits...))
	require.NoError(b.T, err)
	return out
}

// As sets the durability of a change.
func As(d fleet.Durability) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Spec.Durability = d }
}

// Unreleased makes a change that is not released.
func Unreleased(c *deliveries.InstanceChange) { c.Release = false }

// Named changes another instance than the press.
func Named(name string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Key.Name = name }
}

// Labelled sets the labels of a change.
func Labelled(labels map[string]string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Labels = labels }
}

// Running sets what a change runs.
func Running(command string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) {
		c.Spec.Run = &fleet.Run{Command: []string{command}}
		c.RunJSON = json.RawMessage(fmt.Sprintf(`{"command":[%q]}`, command))
		c.RunHash = JSONOf(string(c.RunJSON)).Hash
	}
}

// TurnOf is a turn of the press.
func TurnOf(kind fleet.OperationKind) deliveries.InstanceTurn {
	return deliveries.InstanceTurn{Write: WriteOf(PressKey), Kind: kind}
}

// Turn turns the press.
func (b *Bench) Turn(kind fleet.OperationKind) postgres.Started {
	b.T.Helper()
	out, err := b.TurnInstance(b.Ctx(), TurnOf(kind))
	require.NoError(b.T, err)
	return out
}

// DeployedRevision reads the deployed revision of the press.
func (b *Bench) DeployedRevision() fleet.Revision {
	b.T.Helper()
	snap, _, err := b.Deployed(b.Ctx(), PressKey)
	require.NoError(b.T, err)
	return snap
}

// BodyBytes is a body of n bytes.
func BodyBytes(n int) []byte {
	return bytes.Repeat([]byte("holdfast"), n/8+1)[:n]
}
