package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// A change of what another region owns continues with the user's own context for that region. Address, token and certificates
// are those that the user saved together: nothing that a region answers is used as an address.

// place is where a change is made. A context is named if the change continues there.
type place struct {
	context string
	client  *api.Client
}

// elsewhere gives where a change that was refused continues, once; nil and the error where it does not.
func (ch *changer) elsewhere(ctx context.Context, key fleet.ObjectKey, m *api.Mutation, err error) (*place, error) {
	var e *fleet.Error
	if fleet.KindOf(err) != fleet.NotOwner || !errors.As(err, &e) || e.Owner == "" || e.Region == "" {
		return nil, err
	}
	if m.IfMatch != "" {
		return nil, e.WithHint(e.Hint + "; --if-match is a version in this region, so read the object there")
	}
	to, known := ch.places[e.Owner]
	if !known {
		var failed error
		if to, failed = ch.contextOf(ctx, e.Owner, ch.client.Address()); failed != nil {
			return nil, failed
		}
		if ch.places == nil {
			ch.places = map[string]*place{}
		}
		ch.places[e.Owner] = to
	}
	if to == nil {
		return nil, e.WithHint(e.Hint + "; to have commands continue there: holdfast context set " + e.Owner + " --address URL --token - --region " + e.Owner)
	}
	ch.note("%s is owned by %s; continuing with context %s", key, e.Owner, to.context)
	m.Region = e.Region // its name there
	return to, nil
}

// contextOf finds the context of a region: one saved with --region, else one whose server names the region; nil if not found.
// Contexts with the address of the server that refused the change are skipped.
func (c *cli) contextOf(ctx context.Context, region, except string) (*place, error) {
	file, err := c.loadContexts()
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(file.Contexts)), func(name string) bool {
		return strings.TrimRight(file.Contexts[name].Address, "/") == except
	})
	at := slices.IndexFunc(names, func(name string) bool { return file.Contexts[name].Region == region })
	for i := 0; at < 0 && i < len(names); i++ {
		saved := file.Contexts[names[i]]
		if saved.Region != "" {
			continue
		}
		is, err := regionAt(ctx, saved)
		if err != nil {
			c.note("context %s: its server does not name its region: %s", names[i], api.ProblemOf(err).Detail)
		}
		if is == region {
			at = i
		}
	}
	if at < 0 {
		return nil, nil
	}
	client, err := clientOf(file.Contexts[names[at]], api.WithRetryNotice(c.noteRetry))
	return &place{names[at], client}, err
}

// clientOf makes a client with what a context has, and nothing from flags or the environment.
func clientOf(saved savedContext, options ...api.ClientOption) (*api.Client, error) {
	security, err := certs.For(saved.Address, saved.certs())
	if err != nil {
		return nil, err
	}
	return api.NewClient(saved.Address, saved.Token, append(options, api.WithTLS(security))...)
}

// askLimit is how long a server may take to name its region.
const askLimit = 5 * time.Second

// regionAt asks the server of a context for its region, once.
func regionAt(ctx context.Context, saved savedContext) (string, error) {
	client, err := clientOf(saved, api.WithPauses())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	list, err := client.Objects(ctx, fleet.KindRegion, "", api.Page{})
	for _, o := range list.Items {
		var status api.RegionStatus
		if json.Unmarshal(o.Status, &status) == nil && status.Self {
			return o.Name, nil
		}
	}
	return "", err
}

// note prints a remark on stderr, except where programs read errors as JSON.
func (c *cli) note(format string, args ...any) {
	if c.flags.output != formatJSON {
		fmt.Fprintln(c.stderr, cleanLines(fmt.Sprintf(format, args...)))
	}
}
