package fleet

// Action is what a revision asks of its nodes.
type Action string

// The actions. Enabling and disabling raise the number with the same hash; a delete is a number without a body.
const (
	ActionDeploy  Action = "deploy"
	ActionEnable  Action = "enable"
	ActionDisable Action = "disable"
	ActionDelete  Action = "delete"
)

// ContentKind says what a revision's body is.
type ContentKind string

// The two kinds of config: canonical JSON (RFC 8785), or opaque bytes of any size.
const (
	ContentJSON     ContentKind = "json"
	ContentArtifact ContentKind = "artifact"
)

// Content names a body: its SHA-256 is the revision hash.
type Content struct {
	Kind ContentKind `json:"kind,omitempty"`
	Hash Hash        `json:"hash,omitempty"`
	Size int64       `json:"size"`
}

// Revision is one immutable, numbered content of an instance. RunHash is the SHA-256 of the canonical run section
// ("" without one), so that a new command with the same config is also a change.
type Revision struct {
	Version
	Action  Action  `json:"action"`
	Content Content `json:"content"`
	RunHash Hash    `json:"runHash,omitempty"`
	Enabled bool    `json:"enabled"`
}

// Same reports whether two revisions put the same thing on a node, whatever their numbers.
func (r Revision) Same(o Revision) bool {
	return r.Content.Hash == o.Content.Hash && r.RunHash == o.RunHash &&
		r.Enabled == o.Enabled && (r.Action == ActionDelete) == (o.Action == ActionDelete)
}
