package nodes

import (
	"bytes"
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

const (
	// logKeep is how many bytes of output are kept: of an instance for each node, and of a replica.
	logKeep = 1 << 20
	// maxLogOffset is more than any program prints.
	maxLogOffset = 1 << 53
)

// outputs are what the region keeps of one program's output. Its offsets count what the region took,
// in the order in which it came: what a node says of a place only shows what it sends twice.
type outputs struct {
	holds func() (bool, error)
	last  func() (at, size int64, err error)
	with  func(offset int64) (at, nodeAt int64, data []byte, err error)
	put   func(at, nodeAt int64, data []byte) error
	trim  func() error
}

// append keeps a piece behind what is kept, and of that the newest.
func (o outputs) append(offset int64, data []byte) error {
	if offset < 0 || offset > maxLogOffset {
		return fleet.Errorf(fleet.Invalid, "offset %d is out of range; the limit is %d", offset, int64(maxLogOffset)).At("/offset")
	}
	if holds, err := o.holds(); err != nil || !holds {
		if err == nil {
			err = fleet.Errorf(fleet.NotFound, "the node does not hold the subject of this output").WithHint("it is taken once the region knows that the node holds it")
		}
		return err
	}
	at, seen := offset, 0 // of the first piece
	last, size, err := o.last()
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	if err == nil {
		at = last + size
		if seen, err = o.seen(last, offset, data); err != nil {
			return err
		}
	}
	if seen == len(data) {
		return nil
	}
	if err := o.put(at, offset+int64(seen), data[seen:]); err != nil {
		return err
	}
	return o.trim()
}

// maxSeen is how many kept pieces one that is sent again is compared with.
const maxSeen = 16

// seen gives how much of a piece was kept before: a node sends a piece again when it did not hear the
// answer, and it may be longer then. One that differs from what was kept is new: the node counts anew.
func (o outputs) seen(last, offset int64, data []byte) (int, error) {
	same, at := 0, int64(-1)
	for range maxSeen {
		found, nodeAt, kept, err := o.with(offset + int64(same))
		if postgres.NoRows(err) && at == last {
			return same, nil // the rest follows what is kept
		}
		if postgres.NoRows(err) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		kept = kept[offset+int64(same)-nodeAt:]
		kept = kept[:min(len(kept), len(data)-same)]
		if !bytes.HasPrefix(data[same:], kept) {
			return 0, nil
		}
		if same += len(kept); same == len(data) {
			return same, nil
		}
		at = found
	}
	return 0, nil
}

// AppendLog keeps the newest output of an instance, bounded per node (X27). It is not_found unless the
// node holds the instance, or is being given it.
func (s *Store) AppendLog(ctx context.Context, node Node, name fleet.InstanceName, offset int64, data []byte) error {
	site, instance, on := string(node.Site), string(name), string(node.Name)
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := q.LockExclusive(ctx, postgres.LinkLock("output", site, instance, on)); err != nil {
			return err
		}
		return outputs{
			holds: func() (bool, error) {
				return q.HoldsInstance(ctx, db.HoldsInstanceParams{Site: site, Name: instance, Node: on})
			},
			last: func() (int64, int64, error) {
				r, err := q.LastLog(ctx, db.LastLogParams{Site: site, Name: instance, Node: on})
				return r.LogOffset, r.Size, err
			},
			with: func(at int64) (int64, int64, []byte, error) {
				r, err := q.LogWith(ctx, db.LogWithParams{Site: site, Name: instance, Node: on, AtOffset: at})
				return r.LogOffset, r.NodeOffset, r.Data, err
			},
			put: func(at, nodeAt int64, data []byte) error {
				return q.InsertLog(ctx, db.InsertLogParams{Site: site, Name: instance, Node: on, LogOffset: at, NodeOffset: nodeAt, Data: data})
			},
			trim: func() error {
				return q.TrimLogs(ctx, db.TrimLogsParams{Site: site, Name: instance, Node: on, KeepBytes: logKeep})
			},
		}.append(offset, data)
	})
}

// AppendReplicaLog keeps the newest output of a replica. It is not_found for a replica that never was
// the node's.
func (s *Store) AppendReplicaLog(ctx context.Context, node fleet.NodeName, id fleet.ReplicaID, offset int64, data []byte) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil {
			return err
		}
		if err := q.LockExclusive(ctx, postgres.LinkLock("output", string(id))); err != nil {
			return err
		}
		return outputs{
			holds: func() (bool, error) {
				return q.HoldsReplica(ctx, db.HoldsReplicaParams{Replica: string(id), Node: string(node)})
			},
			last: func() (int64, int64, error) {
				r, err := q.LastReplicaLog(ctx, string(id))
				return r.LogOffset, r.Size, err
			},
			with: func(at int64) (int64, int64, []byte, error) {
				r, err := q.ReplicaLogWith(ctx, db.ReplicaLogWithParams{Replica: string(id), AtOffset: at})
				return r.LogOffset, r.NodeOffset, r.Data, err
			},
			put: func(at, nodeAt int64, data []byte) error {
				return q.InsertReplicaLog(ctx, db.InsertReplicaLogParams{Replica: string(id), LogOffset: at, NodeOffset: nodeAt, Data: data})
			},
			trim: func() error {
				return q.TrimReplicaLog(ctx, db.TrimReplicaLogParams{Replica: string(id), KeepBytes: logKeep})
			},
		}.append(offset, data)
	})
}
