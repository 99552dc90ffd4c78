package machines

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/bodycache"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// noTime says that a body has no modification time: its ETag is its hash.
var noTime time.Time

// Calls answers what nodes call.
type Calls struct {
	*serve.Server
	Deps
	// Enrolling bounds the enrolments under way.
	Enrolling  *strangers.Limit
	packed     *bodycache.Cache[packedKey]
	fetchBytes *prometheus.CounterVec
	fetchNo    *prometheus.CounterVec
	logSkipped prometheus.Counter
}

// Deps is what the calls of nodes work with.
type Deps struct {
	Store Store
	// Wake tells an entity that there is something to do.
	Wake func(ctx context.Context, subject string)
	// NodeStarted is called when a node has said all that it holds since its start.
	NodeStarted func(ctx context.Context, node fleet.NodeName) error
	PendingTTL  time.Duration
}

// New makes what answers the calls of nodes.
func New(s *serve.Server, d Deps) (*Calls, error) {
	m := &Calls{
		Server: s, Deps: d, Enrolling: strangers.NewLimit(maxEnrolments, enrolmentTime), packed: newPacked(),
		fetchBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_fetch_bytes_total", Help: "Config bytes sent to nodes, as they travel, by content coding.",
		}, []string{"coding"}),
		fetchNo: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_fetch_refusals_total", Help: "Fetches that were refused, by reason.",
		}, []string{"reason"}),
		logSkipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_instance_log_skipped_bytes_total", Help: "Output of instances that nodes dropped before sending it.",
		}),
	}
	return m, s.Measure(m.fetchBytes, m.fetchNo, m.logSkipped)
}

// Mount mounts what nodes call. Users' tokens mean nothing here (N23).
func (s *Calls) Mount(root chi.Router) {
	machine := func(handle func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r = serve.NewCall(w, r, machineOf(r)).Request
			if err := handle(w, r); err != nil {
				s.Refuse(w, r, err)
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		root.Method(method, "/api/internal/deployments/{id}/config", machine(s.fetchConfig))
		root.Method(method, "/api/internal/deployments/{id}/run", machine(s.fetchRun))
	}
	root.Get("/api/internal/batches/{id}/items", machine(s.batchItems))
	root.Post("/api/internal/batches/{id}/bodies", machine(s.batchBodies))
	root.Post("/api/internal/batches/{id}/results", machine(s.batchResults))
	root.Get("/api/internal/sites/{site}/deployments", machine(s.expectedSet))
	root.Post("/api/internal/sites/{site}/bodies", machine(s.ticketBodies))
	root.Post("/api/internal/sites/{site}/tickets", machine(s.tickets))
	root.Post("/api/internal/sites/{site}/confirm-absent", machine(s.confirmAbsent))
	root.Post("/api/internal/sites/{site}/reconciled", machine(s.reconciled))
	root.Post("/api/internal/nodes/enrol", serve.Open(machine(s.enrol)))
	root.Post("/api/internal/nodes/{node}/started", machine(s.nodeStartedCall))
	root.Post("/api/internal/nodes/{node}/owed", machine(s.nodeOwed))
	root.Post("/api/internal/nodes/{node}/reports", machine(s.nodeReports))
	root.Post("/api/internal/nodes/{node}/logs", machine(s.nodeLogs))
	root.Post("/api/internal/nodes/{node}/key", machine(s.nodeKey))
	root.Get("/api/internal/nodes/{node}/replicas", machine(s.nodeReplicas))
	root.Get("/api/internal/nodes/{node}/definitions/{hash}", machine(s.nodeDefinition))
	root.Post("/api/internal/nodes/{node}/replica-logs", machine(s.nodeReplicaLogs))
	root.Post("/api/internal/nodes/{node}/replica-samples", machine(s.nodeReplicaSamples))
}

// readWire reads what a node sends. Members that this version does not know are skipped: a
// node may be one version ahead.
func (s *Calls) readWire(r *http.Request, into any) error {
	return s.WithBody(r.Context(), wireLimit, func(raw []byte) error {
		return decode.Refuse(raw, json.Unmarshal(raw, into))
	})
}

const (
	wireLimit = 1 << 20
	// startedLimit is how long the news of a node's start may take.
	startedLimit = 2 * time.Second
)

// machineOf is whose share of the memory a node's request takes: the node's, or that of its token.
func machineOf(r *http.Request) string {
	if node := chi.URLParam(r, "node"); node != "" {
		return "node:" + node
	}
	hash := identity.HashToken(r.Header.Get("Authorization"))
	return string(hash[:])
}

// node verifies that a request was signed by the node that its path names.
func (s *Calls) node(r *http.Request) (nodes.Node, error) {
	var found nodes.Node
	token, err := serve.Bearer(r)
	if err != nil {
		return found, err
	}
	claims, err := identity.VerifyByAny(identity.RegionAudience, token, func(name fleet.NodeName) (keys []ed25519.PublicKey, err error) {
		found, keys, err = s.Store.Speaker(r.Context(), name)
		return keys, err
	}, s.Now())
	if err == nil && string(claims.Node) != chi.URLParam(r, "node") {
		err = fleet.Errorf(fleet.Unauthenticated, "the token belongs to another node")
	}
	if err == nil && !claims.Key.Equal(ed25519.PublicKey(found.SigningKey)) {
		err = s.Store.UseKey(r.Context(), found.Name, claims.Key)
		found.SigningKey = claims.Key
	}
	if err != nil {
		s.Log.Info("node token refused", "node", chi.URLParam(r, "node"), "err", err)
		return found, err
	}
	serve.CallOf(r.Context()).Still = func(ctx context.Context) error { return s.speaks(ctx, claims) }
	strangers.Of(r.Context()).Admit()
	return found, nil
}

// speaks says that a key is still its node's.
func (s *Calls) speaks(ctx context.Context, by identity.Claims) error {
	keys, err := s.Store.NodeKeys(ctx, by.Node)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return k.Equal(by.Key) }) {
		return fleet.Errorf(fleet.Unauthenticated, "the key of node %s was changed or revoked", by.Node)
	}
	return nil
}

type startedRequest struct {
	StartID   string               `json:"startId"`
	Instances []fleet.NodeInstance `json:"instances"`
	Last      bool                 `json:"last"`
}

const maxStartID = 64

// nodeStartedCall takes a page of what a node holds since its start; after the last one
// what it is owed is started.
func (s *Calls) nodeStartedCall(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in startedRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if in.StartID == "" || len(in.StartID) > maxStartID {
		return fleet.Errorf(fleet.Invalid, "invalid startId: want 1 to %d bytes", maxStartID).At("/startId")
	}
	welcome, err := s.held(r.Context(), nodes.NodeReport{Node: node.Name, StartID: in.StartID, Instances: in.Instances})
	if err != nil {
		return err
	}
	if in.Last {
		if err := s.nodeReady(r.Context(), node.Name, in.StartID); err != nil {
			return err
		}
	}
	return serve.AnswerJSON(w, http.StatusOK, welcome)
}

func (s *Calls) held(ctx context.Context, said nodes.NodeReport) (nodes.Welcome, error) {
	for _, i := range said.Instances {
		if err := fleet.ValidateName("/instances", string(i.Instance)); err != nil {
			return nodes.Welcome{}, err
		}
	}
	return s.Store.HeldBy(ctx, said)
}

func (s *Calls) nodeReady(ctx context.Context, node fleet.NodeName, startID string) error {
	if err := s.Store.NodeReady(ctx, node, startID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startedLimit)
	defer cancel()
	if err := s.NodeStarted(ctx, node); err != nil {
		s.Log.Warn("reconcile of a started node is left to the sweep", "node", node, "err", err)
	}
	return nil
}

type reportsRequest struct {
	Instances []fleet.NodeInstance `json:"instances"`
	Progress  []struct {
		DeploymentID string `json:"deploymentId"`
		Bytes        int64  `json:"bytes"`
		Total        int64  `json:"total"`
	} `json:"progress"`
	Counters map[string]int64 `json:"counters,omitempty"`
	// Refusals are what the node refused, in stable words.
	Refusals []reportedRefusal `json:"refusals,omitempty"`
}

type reportedRefusal struct {
	audit.Refusal
	AgeMS int64 `json:"ageMs"` // of the last of them, by the node's clock
}

// maxCounters bounds what a node may count, and the length of a counter's name.
const maxCounters = 64

// nodeReports takes what changed on a node, and how far its fetches are (N90, N103).
func (s *Calls) nodeReports(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in reportsRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	for _, p := range in.Progress {
		if !fleet.ValidID(p.DeploymentID) || p.Bytes < 0 || p.Total < 0 {
			return fleet.Errorf(fleet.Invalid, "invalid progress of a delivery").At("/progress")
		}
	}
	welcome, err := s.held(r.Context(), nodes.NodeReport{Node: node.Name, Instances: in.Instances})
	if err != nil {
		return err
	}
	// After what it holds: who sees the time of the counters sees that too.
	if err := s.counted(r.Context(), node.Name, in.Counters); err != nil {
		return err
	}
	for _, p := range in.Progress {
		if err := s.Store.Progress(r.Context(), node.Name, p.DeploymentID, p.Bytes, p.Total, s.PendingTTL); err != nil {
			return err
		}
	}
	wake, err := s.Store.NodeReturned(r.Context(), node.Name)
	if err != nil {
		return err
	}
	for _, subject := range wake {
		s.Wake(r.Context(), subject)
	}
	s.refusedBy(node.Name, in.Refusals) // the last: a report that fails comes again
	return serve.AnswerJSON(w, http.StatusOK, welcome)
}

// counted keeps what a node counted, refused stale actions among it (X21).
func (s *Calls) counted(ctx context.Context, node fleet.NodeName, counters map[string]int64) error {
	if len(counters) == 0 {
		return nil
	}
	for name, n := range counters {
		if len(counters) > maxCounters || name == "" || len(name) > maxCounters || n < 0 {
			return fleet.Errorf(fleet.Invalid, "invalid counters").At("/counters")
		}
	}
	return s.Store.NodeCounted(ctx, node, counters)
}

// oldRefusal is longer than a region keeps one.
const oldRefusal = 365 * 24 * time.Hour

// refusedBy has it written down what a node refused. What no node says is left out, and keeps
// nothing else of the report from being taken.
func (s *Calls) refusedBy(node fleet.NodeName, all []reportedRefusal) {
	skipped := 0
	for _, r := range all {
		if !audit.NodeSays(r.Refusal) {
			skipped++
			continue
		}
		age := time.Duration(min(max(r.AgeMS, 0), oldRefusal.Milliseconds())) * time.Millisecond
		r.Reason = audit.KnownReason(r.Reason)
		r.By, r.At = string(node), s.Now().Add(-age)
		s.Refused(r.Refusal)
	}
	if skipped > 0 {
		s.Log.Warn("omitted invalid refusals from a report", "node", node, "count", skipped)
	}
}

type logsRequest struct {
	Instance fleet.InstanceName `json:"instance"`
	Offset   int64              `json:"offset"`
	Data     []byte             `json:"data"`
	Skipped  int64              `json:"skipped"`
}

// nodeLogs takes output of an instance (X27).
func (s *Calls) nodeLogs(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in logsRequest
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if err := fleet.ValidateName("/instance", string(in.Instance)); err != nil {
		return err
	}
	if in.Offset < 0 || in.Skipped < 0 {
		return fleet.Errorf(fleet.Invalid, "invalid offset: want 0 or more").At("/offset")
	}
	s.logSkipped.Add(float64(in.Skipped))
	if len(in.Data) > 0 {
		if err := s.Store.AppendLog(r.Context(), node, in.Instance, in.Offset, in.Data); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
