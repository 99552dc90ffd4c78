package deployments

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// DeploymentPut is a PUT of a deployment. Definition is the body that its generator made, already
// stored. With Deploy unset the spec is written and nothing is released.
type DeploymentPut struct {
	postgres.Write
	Spec       fleet.DeploymentSpec
	Definition fleet.Content
	Deploy     bool
	// Converge asks for an operation also where nothing is to be released, as a deploy does.
	Converge bool
	Reason   string
	// Compare gives the fields of the spec that differ from what runs, nil if nothing of the declaration was released.
	Compare func(runs *fleet.RunningSpec, released bool) ([]fleet.SpecChange, error)
}

// DeploymentTurn asks something of a deployment: converge, scale (to Replicas), restart or destroy. Again refuses a converge
// where no revision is left to roll out.
type DeploymentTurn struct {
	postgres.Write
	Kind  fleet.OperationKind
	Again bool
	// StopFirst has a restart end all replicas before the first new one starts.
	StopFirst bool
	Replicas  *int
	Reason    string
}

// terms are what is kept beside a revision of its definition.
type terms struct {
	Driver         fleet.Driver `json:"driver"`
	StartupSeconds float64      `json:"startupSeconds"`
	// CheckSeconds is how long it takes at most from the first success to being healthy, and then routable.
	CheckSeconds float64 `json:"checkSeconds,omitempty"`
	// SettleSeconds is how long its node waits from the first success until it is healthy or not, with the
	// probe that shows it.
	SettleSeconds float64         `json:"settleSeconds,omitempty"`
	StopSeconds   int             `json:"stopSeconds"`
	Ports         []int           `json:"ports,omitempty"`
	Resources     fleet.Resources `json:"resources"`
	// Replica is what running replicas obey of it that were created by an earlier release.
	Replica fleet.ReplicaTerms `json:"replica,omitzero"`
	// Amended is set if its own replicas obey it as well: their definition says something else.
	Amended bool `json:"amended,omitempty"`
}

const (
	defaultStartupSeconds = 300
	defaultStopSeconds    = 10
)

// termsOf reads them from a definition.
func termsOf(definition []byte) (terms, error) {
	d, err := readDefinition(definition)
	return termsIn(d), err
}

func readDefinition(text []byte) (d fleet.Definition, err error) {
	if err := json.Unmarshal(text, &d); err != nil {
		return d, &fleet.Error{Kind: fleet.Invalid, Message: "the definition is no JSON", Field: "definition", Err: err}
	}
	return d, nil
}

func termsIn(d fleet.Definition) terms {
	t := terms{Driver: d.RunBy(), StartupSeconds: defaultStartupSeconds, StopSeconds: d.StopSeconds, Resources: d.Resources, Replica: d.Terms()}
	if d.Startup != nil && d.Startup.Deadline > 0 {
		t.StartupSeconds = d.Startup.Deadline
	}
	if d.Health != nil {
		h := d.Health.WithDefaults()
		t.CheckSeconds = float64(h.HealthyThreshold)*max(h.Interval, h.Timeout) + h.Timeout
		t.SettleSeconds = h.SettleTime().Seconds() + max(h.Interval, h.Timeout) + h.Timeout
	}
	if d.ChecksReadiness() {
		r := d.Readiness.WithDefaults()
		t.CheckSeconds += float64(r.HealthyThreshold)*max(r.Interval, r.Timeout) + r.Timeout
	}
	if t.StopSeconds <= 0 {
		t.StopSeconds = defaultStopSeconds
	}
	for _, p := range d.Ports {
		if p.Port != 0 {
			t.Ports = append(t.Ports, p.Port)
		}
	}
	return t
}

// readiness reports whether only nodes that run readiness checks may have replicas of it.
func (t terms) readiness() bool { return t.Replica.Readiness != fleet.CheckTerms{} }

func (t terms) startup() time.Duration { return postgres.SecondsOf(t.StartupSeconds) }
func (t terms) check() time.Duration   { return postgres.SecondsOf(t.CheckSeconds) }
func (t terms) settle() time.Duration  { return postgres.SecondsOf(t.SettleSeconds) }
func (t terms) stop() time.Duration    { return time.Duration(t.StopSeconds) * time.Second }

// Bodies are what a spec refers to.
func bodiesOf(spec fleet.DeploymentSpec) []fleet.Hash {
	var out []fleet.Hash
	for _, f := range spec.Process.Files {
		if f.Body != nil {
			out = append(out, f.Body.Hash)
		}
	}
	return out
}

// keptTerms reads the terms that were kept beside a revision.
func keptTerms(r *db.DeploymentRevision) (terms, error) {
	var t terms
	return t, postgres.Unreadable("the terms of a revision", json.Unmarshal(r.Terms, &t))
}
