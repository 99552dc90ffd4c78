package fleet

import "time"

// HandOverCommand asks the holder of a site's lease to stop what runs and to give the lease back.
type HandOverCommand struct {
	Site SiteName `json:"site"`
	To   NodeName `json:"to"`
	// Epoch is the lease's: the node refuses to give back another one. 0 stands for whatever it holds.
	Epoch           int64 `json:"epoch,omitempty"`
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	// Signed is the region's word for it, without which a node does not act on a task.
	Signed Signature `json:"signed,omitzero"`
}

// HandOverResult says whether the lease was given back, or why not. One that the node does
// not hold is given back already.
type HandOverResult struct {
	Released bool   `json:"released"`
	Epoch    int64  `json:"epoch"`
	Reason   string `json:"reason,omitempty"`
}

// TakeOverCommand asks a node to stand for the lease at once. Forced: its own vote favours nobody
// else from now on, so that a holder that cannot be reached runs out.
type TakeOverCommand struct {
	Site            SiteName `json:"site"`
	Forced          bool     `json:"forced"`
	DeadlineSeconds int64    `json:"deadlineSeconds"`
	// Signed is the region's word for it, without which a node does not act on a task.
	Signed Signature `json:"signed,omitzero"`
}

// TakeOverResult is the epoch by which the node holds the lease, 0 with a reason when it does not.
type TakeOverResult struct {
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason,omitempty"`
}

// FailoverSeen is a site's lease and what is asked of it, as the store has them at one moment.
type FailoverSeen struct {
	At        time.Time   `json:"at"`
	Operation OperationID `json:"operation,omitempty"` // the newest, "" for none
	To        NodeName    `json:"to,omitempty"`
	Force     bool        `json:"force,omitempty"`
	Cancelled bool        `json:"cancelled,omitempty"`
	Away      bool        `json:"away,omitempty"` // the node that it is to go to: not on the link
	Asked     time.Time   `json:"asked,omitzero"`
	Deadline  time.Time   `json:"deadline,omitzero"`
	Holder    NodeName    `json:"holder,omitempty"` // the last one, when it was released
	Epoch     int64       `json:"epoch,omitempty"`
	Released  bool        `json:"released,omitempty"`
	Target    NodeName    `json:"target,omitempty"` // that the region's vote waits for
	Lost      bool        `json:"lost,omitempty"`
	Voters    []NodeName  `json:"voters,omitempty"`
	// Counter moves whenever the region hears the holder renew, for a lease of TTL; 0 where none voted.
	Counter int64         `json:"counter,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"`
	// HolderAway: the holder is not on the link. There is when nodes that are there have come back to it.
	HolderAway bool      `json:"holderAway,omitempty"`
	There      time.Time `json:"there,omitzero"`
	// Signed is what nodes may be asked for this operation.
	Signed FailoverSigned `json:"signed,omitzero"`
}

// HandOver is the command that the holder gets for this operation, to be signed. While the region's vote is lost, the
// epoch on record may be behind the holder's, so the command names none.
func (s FailoverSeen) HandOver(site SiteName) HandOverCommand {
	cmd := HandOverCommand{Site: site, To: s.To, Epoch: s.Epoch}
	if s.Lost {
		cmd.Epoch = 0
	}
	return cmd
}

// FailoverSigned are the region's words for what a failover asks: of its holder, and of the node
// that it goes to.
type FailoverSigned struct {
	HandOver Signature `json:"handOver,omitzero"`
	TakeOver Signature `json:"takeOver,omitzero"`
	Forced   Signature `json:"forced,omitzero"`
}

// FailoverEnd ends what was asked of a site's lease towards one node.
type FailoverEnd struct {
	Site          SiteName       `json:"site"`
	To            NodeName       `json:"to"`
	State         OperationState `json:"state"`
	Reason        string         `json:"reason,omitempty"`
	Message       string         `json:"message,omitempty"`
	OnlyCancelled bool           `json:"onlyCancelled,omitempty"`
}

// Failback is a site whose declared active does not hold the lease, though it should have it
// back when it can.
type Failback struct {
	Site      SiteName
	Node      NodeName // the declared active
	Holder    NodeName
	Unsettled bool // the lease is on its way already, or nobody's
	UnderWay  bool // an operation is
	Ready     bool // the node is enrolled, not cordoned, and takes deliveries
	Level     bool // it holds all that the holder does
	Unseen    time.Duration
	Up        time.Duration
	Held      time.Duration // by the holder
}
