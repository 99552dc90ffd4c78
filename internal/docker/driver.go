package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// Driver runs the replicas of one node as containers.
type Driver struct {
	node   fleet.NodeName
	engine *engine

	dir     string // of the files with the position of output
	reading sync.Mutex
	tails   map[fleet.ReplicaID]*tail
	kept    map[fleet.ReplicaID]savedTail // the content of the files

	oomDelay time.Duration // how much later than an exit the engine may learn that memory was the cause
	now      func() time.Duration
	stopping sync.Mutex
	stops    map[string]time.Duration // when a stop of a container was first requested, by its id
}

var _ replicas.Driver = (*Driver)(nil)

// New makes a driver for the engine at host, "" for DefaultHost; dir is for its files. It makes no call.
func New(node fleet.NodeName, host, dir string) (*Driver, error) {
	if host == "" {
		host = DefaultHost
	}
	e, err := newEngine(host)
	return &Driver{
		node: node, engine: e, dir: dir, tails: map[fleet.ReplicaID]*tail{}, kept: map[fleet.ReplicaID]savedTail{},
		oomDelay: time.Second, now: guardian.SinceBoot, stops: map[string]time.Duration{},
	}, err
}

// Answers returns an error if the engine does not answer.
func (d *Driver) Answers(ctx context.Context) error {
	_, err := d.engine.ping(ctx)
	return err
}

func nameOf(id fleet.ReplicaID) string { return "holdfast-" + string(id) }

// beforeOf is the container of a command before the start.
func beforeOf(id fleet.ReplicaID) string { return nameOf(id) + "-before" }

// list gives the containers of this driver that have a label.
func (d *Driver) list(ctx context.Context, label, value string) ([]listed, error) {
	all, err := d.engine.list(ctx, label, value)
	return slices.DeleteFunc(all, func(c listed) bool { return !c.made(d.node) }), err
}

// inspect gives a replica's container by its name. One that another program made under that name is absent: it is
// neither read nor removed, and the engine refuses to create a second one.
func (d *Driver) inspect(ctx context.Context, id fleet.ReplicaID, name string) (inspected, error) {
	c, err := d.engine.inspect(ctx, name)
	if err == nil && (c.Config.Labels[labelReplica] != string(id) || c.Config.Labels[labelNode] != string(d.node)) {
		return inspected{}, fleet.Errorf(fleet.NotFound, "the container %s is not of replica %s", name, id)
	}
	return c, err
}

// List finds the node's containers by their labels and names.
func (d *Driver) List(ctx context.Context) ([]replicas.Found, error) {
	all, err := d.list(ctx, labelNode, string(d.node))
	if err != nil {
		return nil, err
	}
	found := map[fleet.ReplicaID]replicas.Found{}
	for _, c := range all {
		id := c.replica()
		if !fleet.ValidReplicaID(string(id)) {
			continue
		}
		if _, has := found[id]; has && c.before() {
			continue
		}
		found[id] = replicas.Found{ID: id, Running: c.runs() && !c.before()}
	}
	list := make([]replicas.Found, 0, len(found))
	for id, f := range found {
		if f.Running {
			if f, err = d.Look(ctx, id); err != nil {
				return nil, err
			}
		}
		list = append(list, f)
	}
	return list, nil
}

// Look asks the engine about one replica.
func (d *Driver) Look(ctx context.Context, id fleet.ReplicaID) (replicas.Found, error) {
	c, err := d.inspect(ctx, id, nameOf(id))
	if absent(err) {
		return replicas.Found{ID: id}, nil
	}
	return replicas.Found{ID: id, Running: c.State.Running, PID: c.State.Pid}, err
}

// Prepare pulls the image if it is missing.
func (d *Driver) Prepare(ctx context.Context, l replicas.Launch) error {
	return d.engine.pull(ctx, l.Process.Image)
}

// RunBefore runs the commands before the start.
func (d *Driver) RunBefore(ctx context.Context, l replicas.Launch) error {
	for i, command := range l.Process.PreStart {
		if err := d.before(ctx, l, i, command); err != nil {
			return err
		}
	}
	return nil
}

// before runs one command in its own container, and removes that unless the command fails: then its output
// stays until the next one.
func (d *Driver) before(ctx context.Context, l replicas.Launch, i int, command []string) (err error) {
	name := beforeOf(l.ID)
	old, err := d.inspect(ctx, l.ID, name)
	if err == nil {
		err = d.engine.remove(ctx, old.ID)
	}
	if err != nil && !absent(err) {
		return err
	}
	l.Ports = nil
	c := containerOf(l)
	c.Entrypoint, c.Cmd, c.Labels[labelBefore] = command[:1], command[1:], strconv.Itoa(i+1)
	id, err := d.engine.create(ctx, name, c)
	if err != nil {
		return err
	}
	defer func() {
		var failed *replicas.Failure
		if !errors.As(err, &failed) {
			err = errors.Join(err, d.engine.remove(context.WithoutCancel(ctx), id))
		}
	}()
	if err := d.engine.do(ctx, id, "start", nil); err != nil {
		return notStarted(err)
	}
	if err := d.engine.wait(ctx, id); err != nil {
		if ctx.Err() != nil {
			err = fleet.Errorf(fleet.Unavailable, "command %d before the start has not ended: %w", i+1, context.Cause(ctx))
		}
		return err
	}
	ended, err := d.engine.inspect(ctx, id)
	if err == nil && ended.State.ExitCode != 0 {
		return &replicas.Failure{Reason: fleet.ReasonExited, Err: fleet.Errorf(fleet.ApplyFailed,
			"command %d before the start: exit code %d", i+1, ended.State.ExitCode)}
	}
	return err
}

// Start starts the container of a replica; it creates one unless a matching one exists.
func (d *Driver) Start(ctx context.Context, l replicas.Launch) (replicas.Found, error) {
	id, err := d.container(ctx, l)
	if err != nil {
		return replicas.Found{}, err
	}
	if err := d.engine.do(ctx, id, "start", nil); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, d.engine.remove(context.WithoutCancel(ctx), id))
		}
		return replicas.Found{}, notStarted(err)
	}
	d.hasStopped(id)
	return d.settled(ctx, l)
}

// settle is how long a program without probes must live to count as running.
const settle = 200 * time.Millisecond

// settled checks whether the started container runs.
func (d *Driver) settled(ctx context.Context, l replicas.Launch) (replicas.Found, error) {
	if l.Process.Health == nil || l.Process.Health.Type == fleet.HealthNone {
		within, cancel := context.WithTimeout(ctx, settle)
		_ = d.engine.wait(within, nameOf(l.ID)) // its state is checked next
		cancel()
	}
	found, err := d.Look(ctx, l.ID)
	if err != nil || found.Running {
		return found, err
	}
	exit, err := d.Await(ctx, l.ID)
	if err != nil || exit.Reason == "" {
		return found, err
	}
	return found, &replicas.Failure{Reason: exit.Reason, Err: fleet.Errorf(fleet.ApplyFailed, "%s", exit.Message)}
}

// container gives the container of a launch: the existing one, if it matches.
func (d *Driver) container(ctx context.Context, l replicas.Launch) (string, error) {
	want := containerOf(l)
	has, err := d.inspect(ctx, l.ID, nameOf(l.ID))
	switch {
	case err == nil && has.Config.Labels[labelDefinition] == want.Labels[labelDefinition] &&
		has.Config.Labels[labelPorts] == want.Labels[labelPorts] && has.Config.Labels[labelGPUs] == want.Labels[labelGPUs]:
		return has.ID, nil
	case err == nil:
		if err := d.engine.remove(ctx, has.ID); err != nil {
			return "", err
		}
		if err := d.forget(l.ID); err != nil {
			return "", err
		}
	case !absent(err):
		return "", err
	}
	id, err := d.engine.create(ctx, nameOf(l.ID), want)
	return id, notStarted(err)
}

// notStarted distinguishes a replica that the engine cannot run from an unreachable engine.
func notStarted(err error) error {
	switch fleet.KindOf(err) { //nolint:exhaustive // these are about the replica; a retry may fix others
	case fleet.Invalid, fleet.NotFound:
		return &replicas.Failure{Reason: fleet.ReasonNotStarted, Err: err}
	}
	return err
}

// Await waits through the engine.
func (d *Driver) Await(ctx context.Context, id fleet.ReplicaID) (replicas.Exit, error) {
	c, err := d.inspect(ctx, id, nameOf(id))
	if err == nil {
		err = d.engine.wait(ctx, c.ID)
	}
	if absent(err) {
		return replicas.Exit{}, nil
	}
	if err != nil {
		return replicas.Exit{}, err
	}
	c, err = d.ended(ctx, id)
	switch {
	case absent(err):
		return replicas.Exit{}, nil
	case err != nil:
		return replicas.Exit{}, err
	case c.State.OOMKilled:
		return replicas.Exit{Reason: fleet.ReasonOutOfMemory, Message: "it exceeded its memory limit"}, nil
	case c.perhapsOOM():
		return replicas.Exit{Reason: fleet.ReasonExited, Message: fmt.Sprintf(
			"it was killed: exit code %d; the engine does not say by whom: perhaps it exceeded its memory limit", c.State.ExitCode)}, nil
	}
	return replicas.Exit{Reason: fleet.ReasonExited, Message: fmt.Sprintf("it ended by itself: exit code %d", c.State.ExitCode)}, nil
}

// ended gives how a container ended. An engine learns of an exit and of memory as its cause in two ways: the
// second may be slower.
func (d *Driver) ended(ctx context.Context, id fleet.ReplicaID) (inspected, error) {
	late := time.After(d.oomDelay)
	look := time.NewTicker(max(d.oomDelay/10, time.Millisecond))
	defer look.Stop()
	for {
		c, err := d.inspect(ctx, id, nameOf(id))
		if err != nil || c.State.OOMKilled || !c.perhapsOOM() {
			return c, err
		}
		select {
		case <-look.C:
		case <-late:
			return c, nil
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}

// Stop makes the engine stop the replica's containers, by force after the stop time. A container that is only
// created may be about to start: the engine reports it as running only afterwards.
func (d *Driver) Stop(ctx context.Context, id fleet.ReplicaID, within time.Duration) error {
	all, err := d.list(ctx, labelReplica, string(id))
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range all {
		switch {
		case c.over():
			d.hasStopped(c.ID)
		case c.before(): // no caller waits for it any more
			errs = append(errs, d.engine.remove(ctx, c.ID))
		default:
			errs = append(errs, d.stop(ctx, c.ID, within))
		}
	}
	return errors.Join(errs...)
}

// stop gives a container its stop time since the first request, however often the engine was unreachable; the
// next request after it ends the container by force.
func (d *Driver) stop(ctx context.Context, id string, within time.Duration) error {
	c, err := d.engine.inspect(ctx, id)
	if err == nil {
		began, limit := d.toldToStop(id), cmp.Or(within, time.Duration(c.Config.StopTimeout)*time.Second)
		if left := limit - (d.now() - began); left > 0 || limit == 0 || !c.State.Running { // do not kill what does not run
			err = d.engine.stop(ctx, id, left)
		} else {
			err = d.engine.kill(ctx, id)
		}
	}
	if err != nil && !absent(err) {
		return err
	}
	d.hasStopped(id)
	return nil
}

// hasStopped resets the stop time of a container, which may be started again.
func (d *Driver) hasStopped(id string) {
	d.stopping.Lock()
	defer d.stopping.Unlock()
	delete(d.stops, id)
}

// toldToStop is when a stop of a container was first requested.
func (d *Driver) toldToStop(id string) time.Duration {
	d.stopping.Lock()
	defer d.stopping.Unlock()
	if _, told := d.stops[id]; !told {
		d.stops[id] = d.now()
	}
	return d.stops[id]
}

// Remove deletes the replica's containers with their output.
func (d *Driver) Remove(ctx context.Context, id fleet.ReplicaID) error {
	all, err := d.list(ctx, labelReplica, string(id))
	errs := []error{err}
	for _, c := range all {
		errs = append(errs, d.engine.remove(ctx, c.ID))
	}
	return errors.Join(append(errs, d.forget(id))...)
}
