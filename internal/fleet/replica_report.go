package fleet

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Limits of a line in a report; a node truncates its messages accordingly.
const (
	MaxReplicaMessage  = 1000
	maxReplicaWord     = 64
	maxReplicaEndpoint = 300
	maxReplicaPorts    = 32
	maxPort            = 1<<16 - 1
	// maxReplicaAge is the highest age that is distinguished.
	maxReplicaAge = 10 * 365 * 24 * time.Hour
)

// Validate rejects what no node of this version sends: too many lines, unknown words, or a duplicate replica.
func (r ReplicasReport) Validate() error {
	if len(r.Replicas) > MaxReportedReplicas {
		return Errorf(TooLarge, "%d replicas in a report; the limit is %d", len(r.Replicas), MaxReportedReplicas).At("replicas")
	}
	if r.Set.Number < 0 || r.Set.Era < 0 {
		return Errorf(Invalid, "invalid set version %s", r.Set).At("setVersion")
	}
	if r.Digest != nil {
		if r.Complete || len(r.Replicas) > 0 {
			return Errorf(Invalid, "a report has a digest or replicas, not both").At("digest")
		}
		return r.Digest.Validate()
	}
	seen := make(map[ReplicaID]bool, len(r.Replicas))
	for _, s := range r.Replicas {
		if err := s.Validate(); err != nil {
			return err
		}
		if seen[s.ID] {
			return Errorf(Invalid, "replica %s is listed twice", s.ID).At("replicas")
		}
		seen[s.ID] = true
	}
	return nil
}

// Validate rejects unknown words and what is too long.
func (s ReplicaStatus) Validate() error {
	switch {
	case !ValidReplicaID(string(s.ID)):
		return Errorf(Invalid, "invalid replica id %.80q", s.ID).At("id").WithHint("want 12 hex digits")
	case !slices.Contains(ReplicaPhases(), s.Phase):
		return Errorf(Invalid, "unknown phase %.80q of a replica", s.Phase).At("phase")
	case !slices.Contains(ReplicaHealths(), s.Health):
		return Errorf(Invalid, "unknown health %.80q of a replica", s.Health).At("health")
	case s.Deployment != "" && ValidateName("deployment", string(s.Deployment)) != nil:
		return Errorf(Invalid, "invalid deployment name %.80q", s.Deployment).At("deployment")
	case s.Revision < 0 || s.ProcessVersion < 0:
		return Errorf(Invalid, "invalid revision %d.%d of replica %s", s.Revision, s.ProcessVersion, s.ID).At("revision")
	case s.Definition != "" && !isHex(s.Definition, shortHash):
		return Errorf(Invalid, "invalid definition %.80q of replica %s: want %d hex digits", s.Definition, s.ID, shortHash).At("definition")
	case s.Restarts < 0 || s.PID < 0 || s.Age < 0 || s.Age > maxReplicaAge:
		return Errorf(Invalid, "a number of replica %s is out of bounds", s.ID).At("replicas")
	case strings.Contains(s.Reason+s.Message+s.Endpoint, "\x00"):
		return Errorf(Invalid, "the report of replica %s contains a NUL byte", s.ID).At("replicas")
	case len(s.Reason) > maxReplicaWord:
		return Errorf(TooLarge, "the reason is too long: %d bytes", len(s.Reason)).At("reason")
	case len(s.Message) > MaxReplicaMessage:
		return Errorf(TooLarge, "the message has %d bytes; the limit is %d", len(s.Message), MaxReplicaMessage).At("message")
	case len(s.Endpoint) > maxReplicaEndpoint:
		return Errorf(TooLarge, "the endpoint is too long: %d bytes", len(s.Endpoint)).At("endpoint")
	}
	return errors.Join(s.HealthFailure.validate("healthFailure"), s.ReadinessFailure.validate("readinessFailure"), s.validatePorts())
}

func (s ReplicaStatus) validatePorts() error {
	if len(s.Ports) > maxReplicaPorts {
		return Errorf(TooLarge, "%d ports given; the limit is %d", len(s.Ports), maxReplicaPorts).At("ports")
	}
	for name, port := range s.Ports {
		if len(name) > maxReplicaWord || strings.Contains(name, "\x00") || port <= 0 || port > maxPort {
			return Errorf(Invalid, "invalid port %.80q: %d", name, port).At("ports")
		}
	}
	return nil
}
