package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Limits of a deployment. Durations are in seconds.
const (
	MaxReplicas      = 1000
	MaxFilesBytes    = 1 << 20 // of all files of a process together
	maxReplicaCPU    = 4096
	maxReplicaGPUs   = 64
	maxReplicaMemory = 1 << 50
	maxModelBytes    = 4096
	maxTerm          = 7 * 24 * 3600
	maxTries         = 10_000
	maxPlaces        = 256 // of each of the lists of a placement
)

// The default bounds (S21).
const (
	DefaultMinReplicas = 1
	DefaultMaxReplicas = 10
)

// WithDefaults fills in omitted values, except in Process: there the type's values come first, when the definition
// is generated.
func (s DeploymentSpec) WithDefaults() DeploymentSpec {
	s.Type = cmp.Or(s.Type, TypeProcess)
	s.State = cmp.Or(s.State, StateStarted)
	s.Placement.Spread = cmp.Or(s.Placement.Spread, SpreadSites)
	s.Replicas = s.Replicas.withDefaults()
	return s
}

// withDefaults is 1 to 10 if no bound is given; otherwise an omitted bound follows from the others.
func (b ReplicaBounds) withDefaults() ReplicaBounds {
	if b == (ReplicaBounds{}) {
		return ReplicaBounds{Min: DefaultMinReplicas, Max: DefaultMaxReplicas, Initial: DefaultMinReplicas}
	}
	if b.Max == 0 {
		b.Max = max(b.Min, b.Initial, DefaultMaxReplicas)
	}
	if b.Initial == 0 {
		b.Initial = b.Min
	}
	return b
}

// Clamp is the target count within the bounds (S28).
func (b ReplicaBounds) Clamp(target int) int { return min(max(target, b.Min), b.Max) }

// Validate checks what does not depend on the region's other objects or the type's generator. Fields are JSON
// pointers into the spec.
func (s DeploymentSpec) Validate() error {
	if !slices.Contains(DeploymentTypes(), s.Type) {
		return Errorf(Invalid, "unknown type %.40q", s.Type).At("/type").WithHint("use one of " + joined(DeploymentTypes()))
	}
	if s.State != StateStarted && s.State != StateStopped {
		return Errorf(Invalid, "unknown state %.40q; use started or stopped", s.State).At("/state")
	}
	if len(s.Model) > maxModelBytes || strings.ContainsRune(s.Model, 0) {
		return Errorf(Invalid, "invalid model: want a name or a path of at most %d bytes", maxModelBytes).At("/model")
	}
	for _, check := range []func() error{
		s.Process.validate, s.Resources.validate, s.Replicas.Validate, s.Placement.validate, s.Recovery.validate, s.validateStrategy, s.validateUpdate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return validateSecretEnv(s.SecretEnv)
}

// Bodies lists the bodies that the spec refers to; the write protects them from collection.
func (s DeploymentSpec) Bodies() []Hash {
	var out []Hash
	for _, f := range s.Process.Files {
		if f.Body != nil {
			out = append(out, f.Body.Hash)
		}
	}
	return out
}

// Validate rejects bounds that contradict each other (S108).
func (b ReplicaBounds) Validate() error {
	switch {
	case b.Max < 1 || b.Max > MaxReplicas:
		return Errorf(Invalid, "%d replicas requested; the limit is %d, and the least 1", b.Max, MaxReplicas).At("/replicas/max")
	case b.Min < 0 || b.Min > b.Max:
		return Errorf(Invalid, "invalid min %d: max is %d", b.Min, b.Max).At("/replicas/min").
			WithHint("use 0 to max")
	case b.Initial < b.Min || b.Initial > b.Max:
		return Errorf(Invalid, "initial %d is not within %d to %d", b.Initial, b.Min, b.Max).At("/replicas/initial").
			WithHint("use min to max")
	}
	return nil
}

func (r Resources) validate() error {
	switch {
	case !(r.CPU >= 0 && r.CPU <= maxReplicaCPU):
		return Errorf(Invalid, "invalid number of cores: want 0 to %d", maxReplicaCPU).At("/resources/cpu")
	case r.Memory < 0 || r.Memory > maxReplicaMemory:
		return Errorf(Invalid, "%d bytes of memory requested; the limit is %d", r.Memory, int64(maxReplicaMemory)).At("/resources/memory").
			WithHint(`use bytes, or "512Mi", "4Gi"`)
	case r.GPUs < 0 || r.GPUs > maxReplicaGPUs:
		return Errorf(Invalid, "invalid number of GPUs: want 0 to %d", maxReplicaGPUs).At("/resources/gpus")
	}
	return nil
}

func (p PlacementSpec) validate() error {
	switch p.Spread {
	case SpreadSites, SpreadNodes, SpreadNone:
	default:
		return Errorf(Invalid, "unknown spread %.40q", p.Spread).At("/placement/spread").WithHint("use sites, nodes or none")
	}
	for _, l := range []struct {
		field string
		names int
	}{{"/placement/sites", len(p.Sites)}, {"/placement/pools", len(p.Pools)}, {"/placement/modules", len(p.Modules)}} {
		if l.names > maxPlaces {
			return Errorf(Invalid, "%d names given; the limit is %d", l.names, maxPlaces).At(l.field).
				WithHint("select many at once by node labels, or by pools that use them")
		}
	}
	if err := validateNames("/placement/sites", p.Sites); err != nil {
		return err
	}
	if err := validateNames("/placement/pools", p.Pools); err != nil {
		return err
	}
	for i, m := range p.Modules {
		if m == "" || len(m) > maxLabelValue {
			return Errorf(Invalid, "a module's name has 1 to %d bytes", maxLabelValue).At("/placement/modules/" + strconv.Itoa(i))
		}
	}
	return ValidateLabels("/placement/labels", p.Labels)
}

func validateNames[T ~string](field string, names []T) error {
	seen := make(map[T]bool, len(names))
	for i, n := range names {
		if err := ValidateName(field+"/"+strconv.Itoa(i), string(n)); err != nil {
			return err
		}
		if seen[n] {
			return Errorf(Invalid, "%s is given twice", n).At(field + "/" + strconv.Itoa(i))
		}
		seen[n] = true
	}
	return nil
}

func (r Recovery) validate() error {
	for _, t := range []struct {
		field       string
		value, most int
	}{
		{"restarts", r.Restarts, maxTries},
		{"resetSeconds", r.ResetSeconds, maxTerm},
		{"attempts", r.Attempts, maxTries},
		{"attemptSeconds", r.AttemptSeconds, maxTerm},
		{"crashes", r.Crashes, maxTries},
		{"crashSeconds", r.CrashSeconds, maxTerm},
		{"crashMaxSeconds", r.CrashMaxSeconds, maxTerm},
		{"giveUp", r.GiveUp, maxTries},
		{"lostSeconds", r.LostSeconds, maxTerm},
	} {
		if t.value < 0 || t.value > t.most {
			return Errorf(Invalid, "%d is not within 0 to %d", t.value, t.most).At("/recovery/" + t.field).
				WithHint("use 0 for the default")
		}
	}
	return r.validatePauses()
}

// validatePauses rejects a first pause above the longest one, which would cut it.
func (r Recovery) validatePauses() error {
	for _, t := range []struct {
		field string
		value int
	}{{"attemptSeconds", r.AttemptSeconds}, {"crashSeconds", r.CrashSeconds}} {
		if most := r.WithDefaults().CrashMaxSeconds; t.value > most {
			return Errorf(Invalid, "a first pause of %d seconds exceeds crashMaxSeconds, which is %d", t.value, most).
				At("/recovery/" + t.field).WithHint("use a shorter pause, or a longer crashMaxSeconds")
		}
	}
	return nil
}

// Validate checks a pool.
func (s PoolSpec) Validate() error {
	if err := validateNames("/sites", s.Sites); err != nil {
		return err
	}
	if err := validateNames("/nodes", s.Nodes); err != nil {
		return err
	}
	if s.MaxReplicas < 0 || s.MaxReplicas > MaxReplicas {
		return Errorf(Invalid, "invalid number of replicas per node: want 0 to %d", MaxReplicas).At("/maxReplicas").WithHint("use 0 for no limit")
	}
	return ValidateLabels("/labels", s.Labels)
}

func joined[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}
