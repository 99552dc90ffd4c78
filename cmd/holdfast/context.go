package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newContextCommand() *cobra.Command {
	return newGroup("context", "Save regions by name, and choose the current one",
		c.newContextSetCommand(), c.newContextUseCommand(), c.newContextListCommand(), c.newContextDeleteCommand())
}

func (c *cli) newContextSetCommand() *cobra.Command {
	var token, region string
	cmd := &cobra.Command{
		Use: "set NAME --address URL [--token -] [--region NAME] [--ca FILE]", Short: "Save a region by name, and use it", Args: cobra.ExactArgs(1),
		Example:           "  holdfast context set lab --address http://127.0.0.1:8080 --token - < token",
		ValidArgsFunction: c.completeContexts,
	}
	cmd.Flags().StringVar(&token, "token", "", "token; - reads it from stdin, so that no process list shows it")
	cmd.Flags().StringVar(&region, "region", "", "name of the region: commands continue here with what it owns (default: its server is asked)")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := optionalName("region", region); err != nil {
			return &usageError{err}
		}
		file, err := c.loadContexts()
		if err != nil {
			return err
		}
		entry := file.Contexts[args[0]]
		if c.flags.address != "" && c.flags.address != entry.Address {
			entry = savedContext{Address: c.flags.address} // tokens and certificates belong to an address
		}
		if token == "-" {
			if token, err = readLine(c.stdin); err != nil {
				return err
			}
		}
		entry.Token, entry.Project = first(token, entry.Token), first(c.flags.project, entry.Project)
		entry.Region = first(region, entry.Region)
		if entry.Address == "" {
			return &usageError{fmt.Errorf("--address is required for a new context")}
		}
		if err := entry.keep(c.flags.certs); err != nil {
			return err
		}
		if _, err := clientOf(entry); err != nil {
			return err
		}
		file.Contexts[args[0]], file.Current = entry, args[0]
		if err := c.saveContexts(file); err != nil {
			return err
		}
		return c.print(single(contextHeader, contextItem(file, args[0])))
	}
	return cmd
}

func (c *cli) newContextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Use a saved region from now on", Args: cobra.ExactArgs(1),
		ValidArgsFunction: c.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := c.knownContext(args[0])
			if err != nil {
				return err
			}
			file.Current = args[0]
			if err := c.saveContexts(file); err != nil {
				return err
			}
			return c.print(single(contextHeader, contextItem(file, args[0])))
		},
	}
}

func (c *cli) newContextListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List saved regions (tokens are not shown)", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := c.loadContexts()
			if err != nil {
				return err
			}
			v := view{header: contextHeader}
			for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
				v.items = append(v.items, contextItem(file, name))
			}
			return c.print(v)
		},
	}
}

func (c *cli) newContextDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a saved region and its token", Args: cobra.ExactArgs(1),
		ValidArgsFunction: c.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := c.knownContext(args[0])
			if err != nil {
				return err
			}
			gone := contextItem(file, args[0])
			delete(file.Contexts, args[0])
			if file.Current == args[0] {
				file.Current = ""
			}
			if err := c.saveContexts(file); err != nil {
				return err
			}
			return c.print(single(contextHeader, gone))
		},
	}
}

func (c *cli) knownContext(name string) (contexts, error) {
	file, err := c.loadContexts()
	if err != nil {
		return file, err
	}
	if _, known := file.Contexts[name]; !known {
		return file, fleet.Errorf(fleet.NotFound, "context %q not found", name).WithHint("holdfast context list")
	}
	return file, nil
}

var contextHeader = []string{"NAME", "CURRENT", "REGION", "ADDRESS", "PROJECT", "TOKEN"}

// contextItem shows a context without its secrets.
func contextItem(file contexts, name string) item {
	entry := file.Contexts[name]
	shown := struct {
		Name    string `json:"name"`
		Current bool   `json:"current"`
		Region  string `json:"region,omitempty"`
		Address string `json:"address"`
		Project string `json:"project,omitempty"`
		Token   bool   `json:"tokenSaved"`
		CA      string `json:"ca,omitempty"`
		Cert    string `json:"clientCert,omitempty"`
	}{name, name == file.Current, entry.Region, entry.Address, entry.Project, entry.Token != "", entry.CA, entry.ClientCert}
	return item{
		name: "context/" + name, value: shown,
		cells: []string{name, yesNo(shown.Current), shown.Region, shown.Address, shown.Project, yesNo(shown.Token)},
	}
}

func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	line = strings.TrimSpace(line)
	if line == "" {
		return "", fleet.Errorf(fleet.Invalid, "no token on stdin: %w", err).WithHint("give it with --token - < FILE")
	}
	return line, nil
}

// first returns the first non-empty text.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
