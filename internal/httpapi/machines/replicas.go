package machines

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// nodeReplicas lists what a node is to run of deployments, and what it is to end, whole. It is
// 304 for the version that the node has.
func (s *Calls) nodeReplicas(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	set, err := s.Store.NodeReplicas(r.Context(), node.Name)
	if err != nil {
		return err
	}
	tag := serve.Quoted(fmt.Sprintf("%d.%d", set.Era, set.Version))
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-store")
	if holds(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if set.Replicas == nil {
		set.Replicas = []fleet.NodeReplica{}
	}
	return serve.AnswerJSON(w, http.StatusOK, set)
}

// nodeDefinition gives a node the exact bytes of what it is to run: of nothing else.
func (s *Calls) nodeDefinition(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	hash := fleet.Hash(chi.URLParam(r, "hash"))
	if err := fleet.ValidateHash("hash", hash); err != nil {
		return err
	}
	body, err := s.Store.DefinitionOf(r.Context(), node.Name, hash)
	if err != nil {
		return err
	}
	serve.Describe(w.Header(), fleet.Content{Kind: fleet.ContentJSON, Size: int64(len(body))})
	w.Header().Set("ETag", serve.Quoted(string(hash)))
	http.ServeContent(s.Rolling(w, func(int) {}), r, "", noTime, bytes.NewReader(body))
	return nil
}

type replicaLogsRequest struct {
	Replica fleet.ReplicaID `json:"replica"`
	Offset  int64           `json:"offset"`
	Data    []byte          `json:"data"`
	Skipped int64           `json:"skipped"`
}

// nodeReplicaLogs takes output of a replica (X27).
func (s *Calls) nodeReplicaLogs(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in replicaLogsRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	switch {
	case !fleet.ValidReplicaID(string(in.Replica)):
		return fleet.Errorf(fleet.Invalid, "invalid replica id: want 12 hex digits").At("/replica")
	case in.Offset < 0 || in.Skipped < 0:
		return fleet.Errorf(fleet.Invalid, "invalid offset: want 0 or more").At("/offset")
	}
	s.logSkipped.Add(float64(in.Skipped))
	if len(in.Data) > 0 {
		if err := s.Store.AppendReplicaLog(r.Context(), node.Name, in.Replica, in.Offset, in.Data); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type replicaSamplesRequest struct {
	Samples []struct {
		ID     fleet.ReplicaID `json:"id"`
		CPU    float64         `json:"cpu"`
		Memory int64           `json:"memory"`
	} `json:"samples"`
}

// nodeReplicaSamples takes what the replicas of a node take of it.
func (s *Calls) nodeReplicaSamples(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in replicaSamplesRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if len(in.Samples) > fleet.MaxNodeReplicas {
		return fleet.Errorf(fleet.Invalid, "%d samples given; the limit is %d", len(in.Samples), fleet.MaxNodeReplicas).At("/samples")
	}
	all := make([]deployments.ReplicaSample, len(in.Samples))
	for i, one := range in.Samples {
		if !fleet.ValidReplicaID(string(one.ID)) || one.CPU < 0 || math.IsInf(one.CPU, 0) || one.Memory < 0 {
			return fleet.Errorf(fleet.Invalid, "invalid sample").At("/samples/" + strconv.Itoa(i))
		}
		all[i] = deployments.ReplicaSample{ID: one.ID, CPU: one.CPU, Memory: one.Memory}
	}
	if len(all) > 0 {
		if err := s.Store.ReplicaSampled(r.Context(), node.Name, all); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
