package deliveries

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// item decides about one: what it comes to, in the order in which it is looked at.
func (r *batchRelease) item(i *BatchChange) error {
	name := string(i.Instance)
	o, want := r.objects[name], r.desired[name]
	switch {
	case fleet.KindOf(i.Refused) == fleet.Stale: // a newer write replaced what had to be rolled back
		r.moves.add(targetMove{Name: name, State: fleet.FleetTargetSuperseded, Reason: "newer_revision", Message: messageOf(i.Refused)})
	case i.Refused != nil:
		r.fail(i.Instance, string(fleet.KindOf(i.Refused)), messageOf(i.Refused))
	case o == nil || o.DeletingSince != nil:
		r.fail(i.Instance, string(fleet.NotFound), "the instance is gone")
	case o.Generation != i.Generation:
		r.again(i.Instance, "it was changed at the same moment, again and again")
	case i.Revision != 0 && (want == nil || want.Revision != i.Revision):
		r.moves.add(targetMove{Name: name, State: fleet.FleetTargetSuperseded, Reason: "newer_revision"})
	case i.Revision != 0 && r.settled(want):
		r.moves.add(targetMove{Name: name, State: fleet.FleetTargetSucceeded})
	case i.Revision != 0:
		r.claims = append(r.claims, &batchClaim{Name: name, Object: o, Before: want, Revision: want.Revision, Action: want.Action})
	case slices.ContainsFunc(i.bodies(), func(h fleet.Hash) bool { return r.missing[string(h)] }):
		r.again(i.Instance, "what it refers to was collected at the same moment")
	default:
		return r.change(i, o, want)
	}
	return nil
}

// settled says that a revision is deployed, and that no node is owed anything.
func (r *batchRelease) settled(want *db.Revision) bool {
	return r.deployed[want.Name].Revision == want.Revision && !r.owed[want.Name]
}

// messageOf is the message of an error, bounded and without its causes.
func messageOf(err error) string { return bounded(err.Error()) }

func (r *batchRelease) fail(name fleet.InstanceName, reason, message string) {
	r.moves.add(targetMove{Name: string(name), State: fleet.FleetTargetFailed, Reason: reason, Message: message})
}

// again leaves a target to the next batch, so many times.
func (r *batchRelease) again(name fleet.InstanceName, message string) {
	m := targetMove{Name: string(name), State: fleet.FleetTargetState(r.targets[string(name)].State), Tries: 1}
	if r.targets[string(name)].Tries+1 >= maxTargetTries {
		m.State, m.Reason, m.Message = fleet.FleetTargetFailed, string(fleet.Conflict), message
	}
	r.moves.add(m)
}

// change decides what a spec comes to: a new revision, the same one once more, or nothing.
func (r *batchRelease) change(i *BatchChange, o *fleet.Object, want *db.Revision) error {
	if err := decide.MayDeclare(o.Named(r.s.Region), r.s.Region, r.governed[o.Name].Policies...); err != nil {
		r.fail(i.Instance, string(fleet.KindOf(err)), messageOf(err))
		return nil
	}
	spec, err := json.Marshal(i.Spec)
	if err != nil {
		return err
	}
	c := &batchClaim{Name: o.Name, Object: o, Before: want}
	next := r.releaseOf(i)
	sameSpec := postgres.SameJSON(o.Spec, spec)
	if sameSpec && want != nil && want.Generation == o.Generation && sameRevision(want, next) {
		if r.settled(want) {
			r.moves.add(targetMove{Name: o.Name, State: fleet.FleetTargetUnchanged, Revision: want.Revision, Before: want.Revision})
			return nil
		}
		c.Revision, c.Action = want.Revision, want.Action
		r.claims = append(r.claims, c)
		return nil
	}
	c.Release, c.Spec = &next, o.Spec
	if !sameSpec {
		c.Spec = spec
	}
	c.Generation = o.Generation
	if !sameSpec {
		c.Generation++
	}
	c.Action = string(r.actionOf(i, want))
	r.claims = append(r.claims, c)
	return nil
}

func (r *batchRelease) releaseOf(i *BatchChange) release {
	return releaseOf(InstanceChange{
		Write: postgres.Write{Request: postgres.Request{Actor: r.in.Actor}, Key: fleet.InstanceKey(r.in.Site, i.Instance)}, Spec: i.Spec, Content: i.Content,
		RunJSON: i.RunJSON, RunHash: i.RunHash, Reason: r.in.Reason,
	})
}

// actionOf is enable or disable where nothing else differs.
func (r *batchRelease) actionOf(i *BatchChange, want *db.Revision) fleet.Action {
	if want == nil || want.Action == string(fleet.ActionDelete) || want.Enabled == i.Spec.Enabled {
		return fleet.ActionDeploy
	}
	flipped := *i
	flipped.Spec.Enabled = want.Enabled
	spec, err := json.Marshal(flipped.Spec)
	if err != nil || !sameRevision(want, r.releaseOf(&flipped)) || !postgres.SameJSON(want.Spec, spec) {
		return fleet.ActionDeploy
	}
	if i.Spec.Enabled {
		return fleet.ActionEnable
	}
	return fleet.ActionDisable
}

// maxMessage bounds what is kept of why an item failed.
const maxMessage = 500

// bounded is text that the database takes, and no more of it than a person reads.
func bounded(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return text
}
