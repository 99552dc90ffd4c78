package fleet

import (
	"strconv"
	"time"
)

// Command is what the region asks of a node by a task of Temporal. A node acts on one only with
// the region's Signature: whoever may write to Temporal can make a task.
type Command interface {
	// Terms are what the node acts by, in a fixed order, the name of the command first. They are
	// signed, so a change of them is a new name. How long a node shall try is not among them:
	// the workflow says that.
	Terms() []string
}

// Signature is the region's word for a command: for one node, until a time.
type Signature struct {
	Node    NodeName  `json:"node"`
	Expires time.Time `json:"expires"`
	Value   []byte    `json:"value"` // Ed25519
}

// Terms of a delivery.
func (c RefreshDeploymentCommand) Terms() []string {
	r := c.Revision
	return []string{
		"RefreshDeployment", c.DeploymentID, string(c.Site), string(c.Instance), string(c.Role), term(c.Epoch),
		term(r.Era), term(r.Version.Revision), string(r.Action), string(r.Content.Kind), string(r.Content.Hash), term(r.Content.Size),
		string(r.RunHash), strconv.FormatBool(r.Enabled), c.DeployedBy, moment(c.Timestamp), c.CentralFetchBaseURL, c.FetchToken,
	}
}

// Terms of a batch; its digest stands for its items.
func (c BatchCommand) Terms() []string {
	return []string{
		"RefreshBatch", string(c.BatchID), string(c.Site), string(c.Role), term(c.Epoch), term(int64(c.Count)), string(c.Digest),
		strconv.FormatBool(c.Stage), c.DeployedBy, moment(c.Timestamp), c.CentralFetchBaseURL, c.FetchToken,
	}
}

// Terms of a comparison.
func (c ReconcileCommand) Terms() []string {
	return []string{"Reconcile", c.ID, string(c.Site), string(c.Role), term(c.Epoch), c.BaseURL, c.Token}
}

// Terms of a hand-over.
func (c HandOverCommand) Terms() []string {
	return []string{"HandOver", string(c.Site), string(c.To), term(c.Epoch)}
}

// Terms of a take-over.
func (c TakeOverCommand) Terms() []string {
	return []string{"TakeOver", string(c.Site), strconv.FormatBool(c.Forced)}
}

func term(n int64) string { return strconv.FormatInt(n, 10) }

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
