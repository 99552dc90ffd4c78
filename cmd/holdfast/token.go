package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

// tokenNoun is one of the two kinds of token, which differ only in their purpose.
type tokenNoun struct {
	name   string
	header []string
	cells  func(*cli, api.Token) []string
	list   func(*api.Client, context.Context, api.Page) (api.List[api.Token], error)
	revoke func(*api.Client, context.Context, string, api.Mutation) error
}

func (n tokenNoun) item(c *cli, t api.Token) item {
	return item{name: n.name + "/" + t.ID, value: t, cells: n.cells(c, t)}
}

// created shows a token with its secret. In a table the secret comes first: it is shown only once, and it is what
// the command is for.
func (n tokenNoun) created(c *cli, t api.Token) error {
	it := n.item(c, t)
	it.cells = append([]string{t.Token}, it.cells...)
	return c.print(single(append([]string{"TOKEN"}, n.header...), it))
}

var apiTokens = tokenNoun{
	name:   "token",
	header: []string{"ID", "ROLE", "PROJECT", "NOTE", "BY", "CREATED", "EXPIRES", "STATE"},
	cells: func(c *cli, t api.Token) []string {
		return []string{t.ID, t.Role, t.Project, t.Note, t.CreatedBy, c.ago(t.CreatedAt), stampOf(t.ExpiresAt), c.tokenState(t)}
	},
	list: (*api.Client).Tokens, revoke: (*api.Client).RevokeToken,
}

func (c *cli) newTokenCommand() *cobra.Command {
	return newGroup("token", "API tokens", c.newTokenCreateCommand(), c.newTokenListCommand(apiTokens), c.newTokenRevokeCommand(apiTokens))
}

func (c *cli) newTokenCreateCommand() *cobra.Command {
	var in api.TokenRequest
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create --role ROLE", Short: "Create an API token; it is shown once", Args: cobra.NoArgs,
		Example: "  holdfast token create --role operator --project line-a --ttl 720h --note 'ci of line a'\n" +
			"  holdfast token create --role provider --module-namespace acme.vision",
	}
	cmd.Flags().StringVar(&in.Role, "role", "viewer", "admin, operator, viewer or provider")
	cmd.Flags().StringSliceVar(&in.ModuleNamespaces, "module-namespace", nil, "namespace that a provider may claim, including those below it; may be repeated")
	cmd.Flags().StringVar(&in.Note, "note", "", "purpose of the token")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "lifetime, 0 for unlimited")
	complete(cmd, "role", fixed("admin", "operator", "viewer", "provider"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := aSecondAtLeast("ttl", ttl); ttl != 0 && err != nil {
			return err
		}
		in.Project, in.Seconds = c.flags.project, int64(ttl.Seconds()) // not the context's, which would restrict the token unasked
		client, err := c.connect()
		if err != nil {
			return err
		}
		t, err := client.CreateToken(cmd.Context(), in, api.Mutation{})
		if err != nil {
			return err
		}
		return apiTokens.created(c, t)
	}
	return cmd
}

func (c *cli) newTokenListCommand(n tokenNoun) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List them, without secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.connect()
			if err != nil {
				return err
			}
			tokens, _, err := collect(0, func(p api.Page) (api.List[api.Token], error) { return n.list(client, cmd.Context(), p) })
			if err != nil {
				return err
			}
			v := view{header: n.header}
			for _, t := range tokens {
				v.items = append(v.items, n.item(c, t))
			}
			return c.print(v)
		},
	}
}

func (c *cli) newTokenRevokeCommand(n tokenNoun) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID...", Short: "Revoke them at once", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTokens(n),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.connect()
			if err != nil {
				return err
			}
			v, errs := view{header: []string{"ID", "STATE"}}, []error(nil)
			for _, id := range args {
				if err := n.revoke(client, cmd.Context(), id, api.Mutation{}); err != nil {
					errs = append(errs, err)
					continue
				}
				gone := struct {
					ID    string `json:"id"`
					State string `json:"state"`
				}{id, "revoked"}
				v.items = append(v.items, item{name: n.name + "/" + id, value: gone, cells: []string{id, "revoked"}})
			}
			if len(v.items) > 0 {
				if err := c.print(v); err != nil {
					return err
				}
			}
			return c.reportAll(errs)
		},
	}
}

func (c *cli) tokenState(t api.Token) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case t.UsedAt != nil && t.Node != "":
		return "used"
	case t.ExpiresAt != nil && !c.now().Before(*t.ExpiresAt):
		return "expired"
	}
	return "valid"
}
