package main

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const headerSynced = "SYNCED"

// syncedWord is "yes", or the reason why what is declared is not what runs.
func syncedWord(s *api.Condition) string {
	switch {
	case s == nil:
		return ""
	case s.Status == fleet.ConditionTrue:
		return "yes"
	}
	return s.Reason
}

// syncedText says of which revision, since when and why.
func syncedText(s *api.Condition) string {
	if s == nil {
		return ""
	}
	text := syncedWord(s)
	if s.Revision > 0 {
		text += fmt.Sprintf(", revision %d", s.Revision)
	}
	text += ", since " + stamp(s.Since)
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

func syncedHint(s *api.Condition) string {
	if s == nil {
		return ""
	}
	return s.Hint
}

// syncedOf finds the condition synced in a status, also in that of a copy, nil for none.
func syncedOf(status json.RawMessage) *api.Condition {
	var s struct {
		Synced     *api.Condition
		Conditions []api.Condition
	}
	_ = json.Unmarshal(status, &s) // an unknown shape shows none
	for i := range s.Conditions {
		if s.Conditions[i].Type == decide.ConditionSynced {
			return &s.Conditions[i]
		}
	}
	return s.Synced
}

// describeSynced says whether what is declared is what runs, and what helps.
func (c *cli) describeSynced(s *api.Condition) {
	for _, l := range [][2]string{{"Synced", syncedText(s)}, {"What helps", syncedHint(s)}} {
		if l[1] != "" {
			fmt.Fprintf(c.stdout, "%-15s %s\n", l[0]+":", clean(l[1]))
		}
	}
}
