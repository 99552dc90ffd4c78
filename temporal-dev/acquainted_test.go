package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// M15: several regions are up once each lists the others as connected; a later start waits only for those that its region knows and has
// enabled.
func TestStrangerAmong(t *testing.T) {
	t.Parallel()
	eu := &laptop{opts: options{region: "eu"}}
	all := []*laptop{eu, {opts: options{region: "us"}}, {opts: options{region: "ap"}}}
	const connected = `{"status":{"reachable":true,"followed":{"lagSeconds":0}}}`
	for name, row := range map[string]struct {
		us, ap       string // as eu lists them, "" if it does not
		first, later string // who is waited for
	}{
		"all are connected":         {connected, connected, "", ""},
		"one is not known yet":      {connected, "", "ap", ""},
		"one is not reached":        {`{"status":{"followed":{"lagSeconds":0}}}`, connected, "us", "us"},
		"one is not followed yet":   {connected, `{"status":{"reachable":true}}`, "ap", "ap"},
		"one was never up to date":  {connected, `{"status":{"reachable":true,"followed":{}}}`, "ap", "ap"},
		"one is disabled":           {`{"status":{"disabled":true}}`, connected, "us", ""},
		"nobody else is known here": {"", "", "us", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := map[string]regionView{"eu": {}}
			for of, text := range map[string]string{"us": row.us, "ap": row.ap} {
				if text != "" {
					var v regionView
					require.NoError(t, json.Unmarshal([]byte(text), &v))
					known[of] = v
				}
			}
			for _, start := range []struct {
				first bool
				want  string
			}{{true, row.first}, {false, row.later}} {
				err := eu.strangerAmong(all, known, start.first)
				if start.want == "" {
					require.NoError(t, err)
					continue
				}
				require.EqualError(t, err, "region eu is not connected with "+start.want)
			}
		})
	}
}
