package fleet

import (
	"slices"
	"strings"
	"time"
)

// What a line of a report may be long; a node cuts its messages to it.
const (
	MaxReplicaMessage  = 1000
	maxReplicaWord     = 64
	maxReplicaEndpoint = 300
	maxReplicaPorts    = 32
	maxPort            = 1<<16 - 1
	// maxReplicaAge is the oldest that is told from older.
	maxReplicaAge = 10 * 365 * 24 * time.Hour
)

// Validate refuses what no node of this version says: more lines than are allowed, unknown words,
// or a replica that is there twice.
func (r ReplicasReport) Validate() error {
	if len(r.Replicas) > MaxReportedReplicas {
		return Errorf(TooLarge, "%d replicas in a report, allowed are %d", len(r.Replicas), MaxReportedReplicas).At("replicas")
	}
	if r.Set.Number < 0 || r.Set.Era < 0 {
		return Errorf(Invalid, "set version %s", r.Set).At("setVersion")
	}
	seen := make(map[ReplicaID]bool, len(r.Replicas))
	for _, s := range r.Replicas {
		if err := s.Validate(); err != nil {
			return err
		}
		if seen[s.ID] {
			return Errorf(Invalid, "replica %s is there twice", s.ID).At("replicas")
		}
		seen[s.ID] = true
	}
	return nil
}

// Validate refuses unknown words and what is too long.
func (s ReplicaStatus) Validate() error {
	switch {
	case !ValidReplicaID(string(s.ID)):
		return Errorf(Invalid, "%.80q is no replica's id", s.ID).At("id").WithHint("12 hex digits")
	case !slices.Contains(ReplicaPhases(), s.Phase):
		return Errorf(Invalid, "%.80q is no phase of a replica", s.Phase).At("phase")
	case !slices.Contains(ReplicaHealths(), s.Health):
		return Errorf(Invalid, "%.80q is no health of a replica", s.Health).At("health")
	case s.Deployment != "" && ValidateName("deployment", string(s.Deployment)) != nil:
		return Errorf(Invalid, "%.80q is no name of a deployment", s.Deployment).At("deployment")
	case s.Revision < 0:
		return Errorf(Invalid, "revision %d of replica %s", s.Revision, s.ID).At("revision")
	case s.Restarts < 0 || s.PID < 0 || s.Age < 0 || s.Age > maxReplicaAge:
		return Errorf(Invalid, "a number of replica %s is out of bounds", s.ID).At("replicas")
	case strings.Contains(s.Reason+s.Message+s.Endpoint, "\x00"):
		return Errorf(Invalid, "a zero byte in what is said of replica %s", s.ID).At("replicas")
	case len(s.Reason) > maxReplicaWord:
		return Errorf(TooLarge, "a reason of %d bytes", len(s.Reason)).At("reason")
	case len(s.Message) > MaxReplicaMessage:
		return Errorf(TooLarge, "a message of %d bytes, allowed are %d", len(s.Message), MaxReplicaMessage).At("message")
	case len(s.Endpoint) > maxReplicaEndpoint:
		return Errorf(TooLarge, "an endpoint of %d bytes", len(s.Endpoint)).At("endpoint")
	}
	return s.validatePorts()
}

func (s ReplicaStatus) validatePorts() error {
	if len(s.Ports) > maxReplicaPorts {
		return Errorf(TooLarge, "%d ports, allowed are %d", len(s.Ports), maxReplicaPorts).At("ports")
	}
	for name, port := range s.Ports {
		if len(name) > maxReplicaWord || strings.Contains(name, "\x00") || port <= 0 || port > maxPort {
			return Errorf(Invalid, "%.80q is no port at %d", name, port).At("ports")
		}
	}
	return nil
}
