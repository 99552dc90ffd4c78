package docker

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// The labels that identify containers.
const (
	labelPrefix     = "holdfast."
	labelReplica    = "holdfast.replica"
	labelNode       = "holdfast.node"
	labelDefinition = "holdfast.definition"
	labelPorts      = "holdfast.ports"
	labelGPUs       = "holdfast.gpus"
	labelOutput     = "holdfast.output" // the offset of its first byte of output
	labelBefore     = "holdfast.before" // of a container for a command before the start
)

// The limits of the output that an engine keeps of a container; rotation drops part of it.
const (
	logSize  = "4m"
	logFiles = "2"
)

// maxTasks bounds the processes and threads of a container: a quarter of what the smallest machines can have
// (kernel.pid_max).
const maxTasks = 8192

// confined is what every container loses of an engine's defaults: programs gain no privileges by set-user-ID
// files; no raw sockets, which read and forge the traffic of other containers; no device nodes, since the machine
// sees its directory too.
var confined = struct{ drop, options []string }{
	drop: []string{"NET_RAW", "MKNOD"}, options: []string{"no-new-privileges"},
}

// create is the body of a container's creation, the fields in use.
type create struct {
	Image        string              `json:"Image"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Env          []string            `json:"Env"`
	Labels       map[string]string   `json:"Labels"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	StopTimeout  int                 `json:"StopTimeout"`
	HostConfig   hostConfig          `json:"HostConfig"`
}

type hostConfig struct {
	Binds          []string                 `json:"Binds,omitempty"`
	PortBindings   map[string][]portBinding `json:"PortBindings,omitempty"`
	NanoCPUs       int64                    `json:"NanoCpus,omitempty"`
	Memory         int64                    `json:"Memory,omitempty"`
	ShmSize        int64                    `json:"ShmSize,omitempty"`
	DeviceRequests []deviceRequest          `json:"DeviceRequests,omitempty"`
	CapDrop        []string                 `json:"CapDrop"`
	SecurityOpt    []string                 `json:"SecurityOpt"`
	PidsLimit      int64                    `json:"PidsLimit"`
	RestartPolicy  restartPolicy            `json:"RestartPolicy"`
	LogConfig      logConfig                `json:"LogConfig"`
	Init           bool                     `json:"Init"`
}

type (
	portBinding   struct{ HostPort string }
	restartPolicy struct{ Name string }
	logConfig     struct {
		Type   string
		Config map[string]string
	}
	deviceRequest struct {
		DeviceIDs    []string
		Capabilities [][]string
	}
)

// containerOf is the container of a launch.
func containerOf(l replicas.Launch) create {
	c := create{
		Image: named(l.Process.Image), Entrypoint: l.Process.Command, Cmd: l.Process.Args, Env: l.Env, StopTimeout: l.Process.StopSeconds,
		ExposedPorts: map[string]struct{}{},
		Labels: map[string]string{
			labelReplica: string(l.ID), labelNode: string(l.Node), labelDefinition: string(l.Definition), labelPorts: portsText(l.Ports),
			labelOutput: strconv.FormatInt(l.OutputFrom, 10), labelGPUs: "", labelBefore: "", // else an image's labels would apply
		},
		HostConfig: hostConfig{
			Binds: []string{l.Dir + ":" + replicas.ContainerDir}, PortBindings: map[string][]portBinding{},
			NanoCPUs: int64(l.Resources.CPU * 1e9), Memory: l.Resources.Memory, ShmSize: l.Process.SharedMemory, RestartPolicy: restartPolicy{Name: "no"}, Init: true,
			CapDrop: confined.drop, SecurityOpt: confined.options, PidsLimit: maxTasks,
			LogConfig: logConfig{Type: "json-file", Config: map[string]string{"max-size": logSize, "max-file": logFiles}},
		},
	}
	for _, port := range l.Ports {
		at := strconv.Itoa(port.Port)
		c.ExposedPorts[at+"/tcp"] = struct{}{}
		c.HostConfig.PortBindings[at+"/tcp"] = []portBinding{{HostPort: at}}
	}
	if len(l.GPUs) > 0 {
		gpus := make([]string, len(l.GPUs))
		for i, n := range l.GPUs {
			gpus[i] = strconv.Itoa(n)
		}
		c.Labels[labelGPUs] = strings.Join(gpus, ",")
		c.HostConfig.DeviceRequests = []deviceRequest{{DeviceIDs: gpus, Capabilities: [][]string{{"gpu"}}}}
	}
	return c
}

func portsText(ports []fleet.ProcessPort) string {
	text := ""
	for _, p := range ports {
		text += p.Name + "=" + strconv.Itoa(p.Port) + " "
	}
	return text
}

// size is what a container's command and environment have together.
func (c create) size() (bytes int) {
	for _, text := range slices.Concat(c.Entrypoint, c.Cmd, c.Env) {
		bytes += len(text)
	}
	return bytes
}

// listed is a row of the engine's list.
type listed struct {
	ID     string            `json:"Id"`
	Names  []string          `json:"Names"`
	Labels map[string]string `json:"Labels"`
	State  string            `json:"State"`
}

func (l listed) replica() fleet.ReplicaID { return fleet.ReplicaID(l.Labels[labelReplica]) }

func (l listed) before() bool { return l.Labels[labelBefore] != "" }

// made tells whether a node's driver made the container. Labels alone do not show that, since an image may have
// the same, but its name is chosen by its creator.
func (l listed) made(node fleet.NodeName) bool {
	name := nameOf(l.replica())
	if l.before() {
		name = beforeOf(l.replica())
	}
	return l.Labels[labelNode] == string(node) && slices.Contains(l.Names, "/"+name)
}

// over: it has ended. runs: it was started and has not ended.
func (l listed) over() bool { return l.State == "exited" || l.State == "dead" }
func (l listed) runs() bool { return !l.over() && l.State != "created" }

// list gives the containers that have a label, also ended ones. It reads them one by one: a row has a whole
// command, and all labels of an image.
func (e *engine) list(ctx context.Context, label, value string) (all []listed, err error) {
	filters, err := json.Marshal(map[string][]string{"label": {label + "=" + value}})
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "encode the filter: %w", err)
	}
	ctx, cancel := limited(ctx, e.limit)
	defer cancel()
	body, err := e.open(ctx, request{method: http.MethodGet, path: "/containers/json", query: url.Values{"all": {"1"}, "filters": {string(filters)}}})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	rows := json.NewDecoder(body)
	for _, err = rows.Token(); err == nil && rows.More(); {
		var row listed
		if err = rows.Decode(&row); err == nil {
			maps.DeleteFunc(row.Labels, func(label, _ string) bool { return !strings.HasPrefix(label, labelPrefix) })
			all = append(all, row)
		}
	}
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "read the engine's answer: %w", err)
	}
	return all, nil
}

// inspected is the engine's state of one container.
type inspected struct {
	ID    string `json:"Id"`
	State struct {
		Running   bool
		Pid       int
		ExitCode  int
		OOMKilled bool
		Error     string
		StartedAt string
	}
	Config struct {
		Labels      map[string]string
		StopTimeout int
	}
	HostConfig struct{ Memory int64 }
}

// exitKilled is the exit code after SIGKILL: 128 and the signal's number.
const exitKilled = 137

// perhapsOOM tells whether the kernel may have ended it because of its memory, whatever the engine knows.
func (c inspected) perhapsOOM() bool {
	return !c.State.Running && c.State.ExitCode == exitKilled && c.HostConfig.Memory > 0
}

func (e *engine) inspect(ctx context.Context, id string) (inspected, error) {
	var c inspected
	return c, e.call(ctx, request{method: http.MethodGet, path: "/containers/" + id + "/json"}, &c)
}

// do posts to a container.
func (e *engine) do(ctx context.Context, id, verb string, query url.Values) error {
	return e.call(ctx, request{method: http.MethodPost, path: "/containers/" + id + "/" + verb, query: query, limit: doLimit}, nil)
}

// stopMargin is how much longer than a container's stop time an engine may take to stop it.
const stopMargin = 10 * time.Second

// stop makes the engine stop a container, by force after a time, in whole seconds.
func (e *engine) stop(ctx context.Context, id string, within time.Duration) error {
	seconds := int(math.Ceil(max(within, 0).Seconds()))
	return e.call(ctx, request{
		method: http.MethodPost, path: "/containers/" + id + "/stop", limit: time.Duration(seconds)*time.Second + stopMargin,
		query: url.Values{"t": {strconv.Itoa(seconds)}},
	}, nil)
}

// kill ends a container by force, and returns when it has ended.
func (e *engine) kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopMargin)
	defer cancel()
	err := e.do(ctx, id, "kill", url.Values{"signal": {"SIGKILL"}})
	if err != nil {
		return err
	}
	return e.wait(ctx, id)
}

// create makes a container. Names in its command may have become longer than what was declared.
func (e *engine) create(ctx context.Context, name string, c create) (id string, err error) {
	if size := c.size(); size > fleet.MaxCommandBytes {
		return "", fleet.Errorf(fleet.Invalid, "command and environment have %d bytes; the limit is %d", size, fleet.MaxCommandBytes)
	}
	var made struct {
		ID string `json:"Id"`
	}
	err = e.call(ctx, request{method: http.MethodPost, path: "/containers/create", query: url.Values{"name": {name}}, body: c, limit: doLimit}, &made)
	return made.ID, err
}

// remove deletes a container in any state, with its anonymous volumes.
func (e *engine) remove(ctx context.Context, id string) error {
	err := e.call(ctx, request{
		method: http.MethodDelete, path: "/containers/" + id, query: url.Values{"force": {"1"}, "v": {"1"}}, limit: doLimit,
	}, nil)
	if absent(err) {
		return nil
	}
	return err
}

// wait returns when a container has ended.
func (e *engine) wait(ctx context.Context, id string) error {
	var ended struct{ StatusCode int }
	return e.call(ctx, request{method: http.MethodPost, path: "/containers/" + id + "/wait", limit: noLimit}, &ended)
}
