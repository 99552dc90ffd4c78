package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// stats are the engine's measurements, the fields in use.
type stats struct {
	CPU struct {
		Usage struct {
			Total uint64 `json:"total_usage"` // nanoseconds
		} `json:"cpu_usage"`
	} `json:"cpu_stats"`
	Memory struct {
		Usage int64 `json:"usage"`
		Stats struct {
			InactiveFile int64 `json:"inactive_file"`
		} `json:"stats"`
	} `json:"memory_stats"`
}

// Usage reads the measurements of each running container.
func (d *Driver) Usage(ctx context.Context) (map[fleet.ReplicaID]replicas.Usage, error) {
	all, err := d.list(ctx, labelNode, string(d.node))
	if err != nil {
		return nil, err
	}
	used := make(map[fleet.ReplicaID]replicas.Usage, len(all))
	var errs []error
	for _, c := range all {
		if !c.runs() || c.before() {
			continue
		}
		var s stats
		err := d.engine.call(ctx, request{
			method: http.MethodGet, path: "/containers/" + c.ID + "/stats", query: url.Values{"stream": {"0"}, "one-shot": {"1"}},
		}, &s)
		switch {
		case absent(err), errors.Is(err, io.EOF): // it has just ended, or the engine has no measurement yet and sends nothing
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		// Memory of cached files is freed when it is needed.
		used[c.replica()] = replicas.Usage{CPU: float64(s.CPU.Usage.Total) / 1e9, Memory: max(s.Memory.Usage-s.Memory.Stats.InactiveFile, 0)}
	}
	return used, errors.Join(errs...)
}
