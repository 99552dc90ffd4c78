package api

import (
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (p PoolPut) beside() (string, map[string]string) { return p.Project, p.Labels }
func (p PoolPut) spec() (any, error)                  { return poolSpecOf(p), p.Check() }

func poolSpecOf(put PoolPut) fleet.PoolSpec {
	return fleet.PoolSpec{Sites: put.Sites, Nodes: put.Nodes, Labels: put.NodeLabels, MaxReplicas: put.MaxReplicas}
}

// Check looks at what can be seen without the region.
func (p PoolPut) Check() error { return ofPool(poolSpecOf(p).Validate()) }

// ofPool turns a place in a spec into one in the body of its PUT, where labels are the object's.
func ofPool(err error) error {
	var e *fleet.Error
	if errors.As(err, &e) && (e.Field == "/labels" || strings.HasPrefix(e.Field, "/labels/")) {
		return e.At("/nodeLabels" + strings.TrimPrefix(e.Field, "/labels"))
	}
	return err
}
