package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BatchID is 32 hex digits. Fetch tokens carry it as their deploymentId.
type BatchID string

// Limits of a batch. Bodies larger than MaxBatchBody are fetched one by one from the config endpoint, with the
// token of the batch.
const (
	MaxBatchItems = 1000
	MaxBatchBody  = 1 << 20
	// MaxComparedNames limits the names in one request of a comparison.
	MaxComparedNames = 500
	// MaxBatchBytes limits the bodies in the stream of one batch.
	MaxBatchBytes = 8 << 20
)

// BatchCommand notifies a node of many deliveries at one site (N98). It carries an id, the number of items and
// their digest. The items, their bodies and their results travel over HTTP.
type BatchCommand struct {
	BatchID BatchID  `json:"batchId"`
	Site    SiteName `json:"site"`
	Role    Role     `json:"role"` // that the receiving node must have
	Epoch   int64    `json:"epoch"`
	Count   int      `json:"count"`
	// Digest is BatchDigest of the items.
	Digest Hash `json:"digest"`
	// Stage makes the node fetch and keep what a later delivery switches to (N100).
	Stage      bool      `json:"stage,omitempty"`
	DeployedBy string    `json:"deployedBy"`
	Timestamp  time.Time `json:"timestamp"`
	// CentralFetchBaseURL is where items and bodies are fetched.
	CentralFetchBaseURL string `json:"centralFetchBaseUrl"`
	// FetchToken is sealed to the node's X25519 key.
	FetchToken string `json:"fetchToken"`
	// IdleTimeout is how long the node may go without progress before it gives up.
	IdleTimeout time.Duration `json:"idleTimeout"`
	// Signed is the region's signature, without which a node ignores a task.
	Signed Signature `json:"signed,omitzero"`
}

// BatchItem is one delivery of a batch as the node reads it.
type BatchItem struct {
	DeploymentID string       `json:"deploymentId"`
	Instance     InstanceName `json:"instance"`
	Revision     Revision     `json:"revision"`
	// Run is the canonical run section; its SHA-256 is Revision.RunHash.
	Run []byte `json:"run,omitempty"`
	// Gone is set if it was superseded or cut short since: the node fetches nothing for it.
	Gone bool `json:"gone,omitempty"`
}

// BatchDigest is the SHA-256 over the items, ordered by name.
func BatchDigest(items []BatchItem) Hash {
	sorted := slices.SortedFunc(slices.Values(items), func(a, b BatchItem) int {
		return strings.Compare(string(a.Instance), string(b.Instance))
	})
	sum := sha256.New()
	for _, i := range sorted {
		r := i.Revision
		_, _ = fmt.Fprintf(sum, "%s %s %d.%d %s %s %s %t\n", // a hash takes everything
			i.DeploymentID, i.Instance, r.Era, r.Version.Revision, r.Action, r.Content.Hash, r.RunHash, r.Enabled)
	}
	return Hash(hex.EncodeToString(sum.Sum(nil)))
}

// BatchResult is a node's result for one item: applied if Reason is "".
type BatchResult struct {
	DeploymentID string       `json:"deploymentId"`
	Instance     InstanceName `json:"instance"`
	Held         Held         `json:"held"`
	Already      bool         `json:"already,omitempty"`
	// Staged is set if it was only fetched.
	Staged  bool   `json:"staged,omitempty"`
	Fetched int64  `json:"fetched,omitempty"`
	Reason  Kind   `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// BatchOutcome is what a node reports to Temporal about a batch: numbers only (X27).
type BatchOutcome struct {
	Applied int   `json:"applied"`
	Already int   `json:"already"`
	Failed  int   `json:"failed"`
	Fetched int64 `json:"fetched"`
}
