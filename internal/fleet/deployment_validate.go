package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a deployment. Durations are seconds.
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

// The bounds of a deployment that names none (S21).
const (
	DefaultMinReplicas = 1
	DefaultMaxReplicas = 10
)

// WithDefaults fills in what is left out, except what runs: there the type speaks first, when the
// definition is generated.
func (s DeploymentSpec) WithDefaults() DeploymentSpec {
	s.Type = cmp.Or(s.Type, TypeProcess)
	s.State = cmp.Or(s.State, StateStarted)
	s.Placement.Spread = cmp.Or(s.Placement.Spread, SpreadSites)
	s.Replicas = s.Replicas.withDefaults()
	return s
}

// withDefaults is 1 to 10 of those that say nothing; else a bound that is left out is where the
// others allow it to be.
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

// Validate checks what can be seen without the region's other objects and without the type's
// generator. Fields are places in the spec.
func (s DeploymentSpec) Validate() error {
	if !slices.Contains(DeploymentTypes(), s.Type) {
		return Errorf(Invalid, "%.40q is no type", s.Type).At("/type").WithHint("one of " + joined(DeploymentTypes()))
	}
	if s.State != StateStarted && s.State != StateStopped {
		return Errorf(Invalid, "%.40q is neither started nor stopped", s.State).At("/state")
	}
	if len(s.Model) > maxModelBytes || strings.ContainsRune(s.Model, 0) {
		return Errorf(Invalid, "a model is a name or a path of at most %d bytes", maxModelBytes).At("/model")
	}
	for _, check := range []func() error{
		s.Process.validate, s.Resources.validate, s.Replicas.Validate, s.Placement.validate, s.Recovery.validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return validateSecretEnv(s.SecretEnv)
}

// Bodies names what the spec refers to, which the write holds against the collection.
func (s DeploymentSpec) Bodies() []Hash {
	var out []Hash
	for _, f := range s.Process.Files {
		if f.Body != nil {
			out = append(out, f.Body.Hash)
		}
	}
	return out
}

// Validate refuses bounds that contradict each other (S108).
func (b ReplicaBounds) Validate() error {
	switch {
	case b.Max < 1 || b.Max > MaxReplicas:
		return Errorf(Invalid, "%d replicas requested; the limit is %d, and the least 1", b.Max, MaxReplicas).At("/replicas/max")
	case b.Min < 0 || b.Min > b.Max:
		return Errorf(Invalid, "%d replicas at least, of %d at most", b.Min, b.Max).At("/replicas/min").
			WithHint("min is 0 to max")
	case b.Initial < b.Min || b.Initial > b.Max:
		return Errorf(Invalid, "%d replicas at first are not within %d to %d", b.Initial, b.Min, b.Max).At("/replicas/initial").
			WithHint("initial is min to max")
	}
	return nil
}

func (r Resources) validate() error {
	switch {
	case !(r.CPU >= 0 && r.CPU <= maxReplicaCPU):
		return Errorf(Invalid, "allowed are 0 to %d cores", maxReplicaCPU).At("/resources/cpu")
	case r.Memory < 0 || r.Memory > maxReplicaMemory:
		return Errorf(Invalid, "%d bytes of memory requested; the limit is %d", r.Memory, int64(maxReplicaMemory)).At("/resources/memory").
			WithHint(`bytes, or "512Mi", "4Gi"`)
	case r.GPUs < 0 || r.GPUs > maxReplicaGPUs:
		return Errorf(Invalid, "allowed are 0 to %d GPUs", maxReplicaGPUs).At("/resources/gpus")
	}
	return nil
}

func (p PlacementSpec) validate() error {
	switch p.Spread {
	case SpreadSites, SpreadNodes, SpreadNone:
	default:
		return Errorf(Invalid, "%.40q is no spread", p.Spread).At("/placement/spread").WithHint("one of sites, nodes, none")
	}
	for _, l := range []struct {
		field string
		names int
	}{{"/placement/sites", len(p.Sites)}, {"/placement/pools", len(p.Pools)}, {"/placement/modules", len(p.Modules)}} {
		if l.names > maxPlaces {
			return Errorf(Invalid, "%d names, allowed are %d", l.names, maxPlaces).At(l.field).
				WithHint("labels of nodes, and pools that select by them, name many at once")
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
			return Errorf(Invalid, "%s stands here twice", n).At(field + "/" + strconv.Itoa(i))
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
				WithHint("0 is the default")
		}
	}
	return r.validatePauses()
}

// validatePauses refuses a first pause that would be cut: no pause is longer than the longest.
func (r Recovery) validatePauses() error {
	for _, t := range []struct {
		field string
		value int
	}{{"attemptSeconds", r.AttemptSeconds}, {"crashSeconds", r.CrashSeconds}} {
		if most := r.WithDefaults().CrashMaxSeconds; t.value > most {
			return Errorf(Invalid, "a first pause of %d seconds is longer than the longest, crashMaxSeconds, of %d", t.value, most).
				At("/recovery/" + t.field).WithHint("declare at most that, or a longer crashMaxSeconds")
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
		return Errorf(Invalid, "allowed are 0 to %d replicas on a node", MaxReplicas).At("/maxReplicas").WithHint("0 is no bound")
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
