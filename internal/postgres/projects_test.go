package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
)

var redKey = fleet.ObjectKey{Kind: fleet.KindProject, Name: "red"}

// declareProject makes one that tests write in.
func (b *bench) declareProject(name fleet.ProjectName) {
	b.t.Helper()
	w := writeOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: string(name)})
	w.Project = name
	_, err := b.Declare(b.ctx(), w, fleet.ProjectSpec{})
	require.NoError(b.t, err)
}

func inRed(c *deliveries.InstanceChange) { c.Project = "red" }

func redToken(hash string) keyring.APIToken {
	return keyring.APIToken{Hash: []byte(jsonOf(hash).Hash[:32]), Role: "operator", Project: "red", CreatedBy: "ann"}
}

// Section 6 of the design: the project of an object never changes, so it outlives the object.
func TestProjects(t *testing.T) {
	t.Parallel()

	t.Run("are not deleted while anything belongs to them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.declareProject("red")
		b.declareProject("blue")
		b.put(`{"a":1}`, unreleased)
		b.put(`{"a":1}`, unreleased, inRed, named("r1"))
		b.put(`{"a":1}`, unreleased, inRed, named("r2"))
		site := writeOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: "red-1"})
		site.Project = "red"
		_, err := b.Declare(b.ctx(), site, fleet.SiteSpec{})
		require.NoError(t, err)
		token, err := b.AddAPIToken(b.ctx(), redToken("good"))
		require.NoError(t, err)
		past := time.Now().Add(-time.Hour)
		expired := redToken("expired")
		expired.ExpiresAt = &past
		_, err = b.AddAPIToken(b.ctx(), expired)
		require.NoError(t, err)

		uses := func(want string) {
			t.Helper()
			_, err := b.DeleteDeclared(b.ctx(), writeOf(redKey))
			refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, want)
		}
		drop := func(name fleet.InstanceName) {
			t.Helper()
			turn := turnOf(fleet.OperationDelete)
			turn.Key, turn.Project = fleet.InstanceKey(plant, name), "red"
			_, err := b.TurnInstance(b.ctx(), turn)
			require.NoError(t, err)
		}
		uses("project red still has 2 instances, 1 site, 1 token")
		drop("r1")
		_, err = b.DeleteDeclared(b.ctx(), site)
		require.NoError(t, err)
		uses("project red still has 1 instance, 1 token")
		drop("r2")
		uses("project red still has 1 token")
		require.NoError(t, b.RevokeAPIToken(b.ctx(), token.ID))
		_, err = b.DeleteDeclared(b.ctx(), writeOf(redKey))
		require.NoError(t, err)
	})

	t.Run("are there when something is made in them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.PutInstance(b.ctx(), b.change(`{"a":1}`, inRed))
		refused(t, fleet.NotFound, err)
		_, err = b.AddAPIToken(b.ctx(), redToken("good"))
		refused(t, fleet.NotFound, err)
	})
}

// X23: who comes first decides, whatever was looked at before.
func TestProjectMeetsANewObject(t *testing.T) {
	t.Parallel()

	for what, create := range map[string]struct {
		table string
		do    func(b *bench) error
	}{
		"an object": {"objects", func(b *bench) error {
			c := b.change(`{"a":1}`, unreleased, inRed)
			_, err := b.PutInstance(b.ctx(), c)
			return err
		}},
		"a token": {"api_tokens", func(b *bench) error {
			_, err := b.AddAPIToken(b.ctx(), redToken("good"))
			return err
		}},
	} {
		t.Run(what+" first: the project stays", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declareProject("red")
			goOn := b.stopAt(create.table)
			made := background(func() (any, error) { return nil, create.do(b) })
			b.waitsForLock(1)
			deleted := background(func() (postgres.Written, error) { return b.DeleteDeclared(b.ctx(), writeOf(redKey)) })
			b.waitsForLock(2)
			goOn()
			_, err := made()
			require.NoError(t, err)
			_, err = deleted()
			refused(t, fleet.IllegalState, err)
		})

		t.Run("the deletion first: "+what+" is refused", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declareProject("red")
			goOn := b.stopAt("objects")
			deleted := background(func() (postgres.Written, error) { return b.DeleteDeclared(b.ctx(), writeOf(redKey)) })
			b.waitsForLock(1)
			made := background(func() (any, error) { return nil, create.do(b) })
			b.waitsForLock(2)
			goOn()
			_, err := deleted()
			require.NoError(t, err)
			_, err = made()
			refused(t, fleet.NotFound, err)
		})
	}
}
