package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

var redKey = fleet.ObjectKey{Kind: fleet.KindProject, Name: "red"}

func redToken(hash string) keyring.APIToken {
	return keyring.APIToken{Hash: []byte(stores.JSONOf(hash).Hash[:32]), Role: "operator", Project: "red", CreatedBy: "ann"}
}

// Section 6 of the design: the project of an object never changes, so it outlives the object.
func TestProjects(t *testing.T) {
	t.Parallel()

	t.Run("are not deleted while anything belongs to them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.DeclareProject("red")
		b.DeclareProject("blue")
		b.Put(`{"a":1}`, stores.Unreleased)
		b.Put(`{"a":1}`, stores.Unreleased, stores.InRed, stores.Named("r1"))
		b.Put(`{"a":1}`, stores.Unreleased, stores.InRed, stores.Named("r2"))
		site := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: "red-1"})
		site.Project = "red"
		_, err := b.Declare(b.Ctx(), site, fleet.SiteSpec{})
		require.NoError(t, err)
		token, err := b.AddAPIToken(b.Ctx(), redToken("good"))
		require.NoError(t, err)
		past := time.Now().Add(-time.Hour)
		expired := redToken("expired")
		expired.ExpiresAt = &past
		_, err = b.AddAPIToken(b.Ctx(), expired)
		require.NoError(t, err)

		uses := func(want string) {
			t.Helper()
			_, err := b.DeleteDeclared(b.Ctx(), stores.WriteOf(redKey))
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, want)
		}
		drop := func(name fleet.InstanceName) {
			t.Helper()
			turn := stores.TurnOf(fleet.OperationDelete)
			turn.Key, turn.Project = fleet.InstanceKey(stores.Plant, name), "red"
			_, err := b.TurnInstance(b.Ctx(), turn)
			require.NoError(t, err)
		}
		uses("project red still has 2 instances, 1 site, 1 token")
		drop("r1")
		_, err = b.DeleteDeclared(b.Ctx(), site)
		require.NoError(t, err)
		uses("project red still has 1 instance, 1 token")
		drop("r2")
		uses("project red still has 1 token")
		require.NoError(t, b.RevokeAPIToken(b.Ctx(), token.ID))
		_, err = b.DeleteDeclared(b.Ctx(), stores.WriteOf(redKey))
		require.NoError(t, err)
	})

	t.Run("are there when something is made in them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.PutInstance(b.Ctx(), b.ChangeOf(`{"a":1}`, stores.InRed))
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.AddAPIToken(b.Ctx(), redToken("good"))
		stores.Refused(t, fleet.NotFound, err)
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
			c := b.ChangeOf(`{"a":1}`, stores.Unreleased, stores.InRed)
			_, err := b.PutInstance(b.Ctx(), c)
			return err
		}},
		"a token": {"api_tokens", func(b *bench) error {
			_, err := b.AddAPIToken(b.Ctx(), redToken("good"))
			return err
		}},
	} {
		t.Run(what+" first: the project stays", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.DeclareProject("red")
			goOn := b.StopAt(create.table)
			made := stores.Background(func() (any, error) { return nil, create.do(b) })
			b.WaitsForLock(1)
			deleted := stores.Background(func() (postgres.Written, error) { return b.DeleteDeclared(b.Ctx(), stores.WriteOf(redKey)) })
			b.WaitsForLock(2)
			goOn()
			_, err := made()
			require.NoError(t, err)
			_, err = deleted()
			stores.Refused(t, fleet.IllegalState, err)
		})

		t.Run("the deletion first: "+what+" is refused", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.DeclareProject("red")
			goOn := b.StopAt("objects")
			deleted := stores.Background(func() (postgres.Written, error) { return b.DeleteDeclared(b.Ctx(), stores.WriteOf(redKey)) })
			b.WaitsForLock(1)
			made := stores.Background(func() (any, error) { return nil, create.do(b) })
			b.WaitsForLock(2)
			goOn()
			_, err := deleted()
			require.NoError(t, err)
			_, err = made()
			stores.Refused(t, fleet.NotFound, err)
		})
	}
}
