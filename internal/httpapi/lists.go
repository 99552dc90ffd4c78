package httpapi

import (
	"context"
	"encoding/base64"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// ListParams come with every list.
type ListParams struct {
	Limit   int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor  string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
	Project string `query:"project" maxLength:"63" format:"name" doc:"only what belongs to this project"`
}

// listProject is the project that a list is narrowed to, "" for all.
func listProject(ctx context.Context, asked string) (fleet.ProjectName, error) {
	c := serve.CallOf(ctx)
	project := fleet.ProjectName(asked)
	if project == "" {
		return c.Project, nil
	}
	if !c.Sees(project) {
		return "", fleet.Errorf(fleet.Denied, "the token is restricted to project %s", c.Project).At("project")
	}
	return project, nil
}

// cursorOf makes a place in a list opaque, so that clients do not build one.
func cursorOf(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

func placeOf(cursor string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", fleet.Errorf(fleet.Invalid, "invalid cursor %.40q: want %s", cursor, serve.WantCursor).At("cursor")
	}
	return string(b), nil
}

// badCursor refuses a place that is of no list, or of another one.
func badCursor(place string) error {
	return fleet.Errorf(fleet.Invalid, "invalid cursor %.40q: want %s, of the same list", cursorOf(place), serve.WantCursor).At("cursor")
}

// page cuts a list that was asked for with one more than the limit.
func page[T any](items []T, limit int32, place func(T) string) api.List[T] {
	l := api.List[T]{Items: items}
	if items == nil {
		l.Items = []T{}
	}
	if len(items) > int(limit) {
		l.Items = items[:limit]
		l.Next = cursorOf(place(items[limit-1]))
	}
	return l
}
