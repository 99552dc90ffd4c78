package api

import (
	"encoding/json"
	"time"
)

// Module is what providers offer under one name. The schemas are those of the newest member.
type Module struct {
	Name         string          `json:"name" doc:"prefix and name"`
	Namespace    string          `json:"namespace"`
	Group        string          `json:"group,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Callable     int             `json:"callable" doc:"members that executions are sent to now"`
	Members      []ModuleMember  `json:"members"`
}

// ModuleMember is a connection that offers a module.
type ModuleMember struct {
	Connection string          `json:"connection"`
	Provider   string          `json:"provider"`
	Node       string          `json:"node,omitempty"`
	Executor   string          `json:"executor"`
	State      ConnectionState `json:"state"`
	Draining   bool            `json:"draining,omitempty"`
	Since      time.Time       `json:"since"`
}
