package guardian

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Labels are what a running process was started or last signalled with.
type Labels struct {
	Version fleet.Version `json:"version"`
	Hash    fleet.Hash    `json:"hash"`
	RunHash fleet.Hash    `json:"runHash,omitempty"`
	Epoch   int64         `json:"epoch"`
}

// Spec is everything that a guardian needs to run one instance.
type Spec struct {
	Instance fleet.InstanceName `json:"instance"`
	Run      fleet.Run          `json:"run"`
	// Env is the complete base environment of the command (PATH, HOME, LANG and the HOLDFAST_ variables); it
	// inherits nothing from the agent or the guardian.
	Env []string `json:"env"`
	// Dir is the working directory of the command.
	Dir    string `json:"dir"`
	Labels Labels `json:"labels"`
	Confinement
	// Once ends the guardian when its command ends, after it has killed what that left. The exit stays on record
	// (Ended, ReasonExited) until the name is started, stopped or removed.
	Once bool `json:"once,omitempty"`
	// PreStart are commands that run before Run.Command, one after the other; it starts when each ended with exit
	// code 0. Any other exit counts as the exit of the command.
	PreStart [][]string `json:"preStart,omitempty"`
	// Cgroup is the directory of a version 2 cgroup in which the commands start, "" for the guardian's. Its
	// creator removes it.
	Cgroup string `json:"cgroup,omitempty"`
	// OutputFrom is the offset of the first byte of output if none is stored: offsets continue after an instance
	// was removed, because its readers know the bytes by their offset.
	OutputFrom int64 `json:"outputFrom,omitempty"`
}

// Backoff is the delay before a command that exited by itself is started again: First, doubled with each exit
// up to Max, and First again once the command lived for Reset.
type Backoff struct {
	First time.Duration `json:"first"`
	Max   time.Duration `json:"max"`
	Reset time.Duration `json:"reset"`
}

func (b Backoff) withDefaults() Backoff {
	if b.First <= 0 {
		b.First = time.Second
	}
	if b.Max <= 0 {
		b.Max = 30 * time.Second
	}
	if b.Reset <= 0 {
		b.Reset = time.Minute
	}
	return b
}

// next gives the delay after an exit, from the one before it and how long the command lived.
func (b Backoff) next(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= b.Reset {
		return min(b.First, b.Max)
	}
	return min(2*last, b.Max)
}

// launch is the content of spec.json.
type launch struct {
	Spec
	Backoff     Backoff `json:"backoff"`
	OutputLimit int64   `json:"outputLimit"`
	// Leased binds the guardian to the lease file.
	Leased bool `json:"leased,omitempty"`
	// OwnName is Runtime.OwnName.
	OwnName string `json:"ownName,omitempty"`
}

const (
	defaultStart = 200 * time.Millisecond
	defaultStop  = 10 * time.Second
	// cookieVar marks every process of an instance, see the package comment.
	cookieVar = "HOLDFAST_GUARDIAN"
	// systemPath finds programs that are in no folder of the command's own PATH.
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// command is a PreStart command, or after them the command itself.
func (s Spec) command(step int) []string {
	if step < len(s.PreStart) {
		return s.PreStart[step]
	}
	return s.Run.Command
}

func (s Spec) startWindow() time.Duration { return seconds(s.Run.StartSeconds, defaultStart) }

func (s Spec) stopGrace() time.Duration { return seconds(s.Run.StopSeconds, defaultStop) }

func seconds(s float64, otherwise time.Duration) time.Duration {
	if s <= 0 {
		return otherwise
	}
	return time.Duration(s * float64(time.Second))
}

func (s Spec) validate() error {
	if err := fleet.ValidateName("/instance", string(s.Instance)); err != nil {
		return err
	}
	if err := s.Run.Validate("/run"); err != nil {
		return err
	}
	if !filepath.IsAbs(s.Dir) {
		return fleet.Errorf(fleet.Invalid, "invalid working directory: want an absolute path").At("/dir")
	}
	if err := s.Confinement.validate(s.Dir); err != nil {
		return err
	}
	for i, command := range s.PreStart {
		if err := (fleet.Run{Command: command}).Validate(fmt.Sprintf("/preStart/%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// Home gives a base environment in which HOME is the working directory, if the commands run as their own user,
// which has no other home.
func (s Spec) Home(base []string) []string {
	env := slices.Clone(base)
	if !s.on() {
		return env
	}
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })
	return append(env, "HOME="+s.Dir)
}

// environment is the command's whole environment. Validate refuses names with HOLDFAST_ in a run section;
// dropping them here makes sure that the node's values win.
func (s Spec) environment(cookie string) []string {
	env := slices.Clone(s.Env)
	for name, value := range s.Run.Env {
		if strings.HasPrefix(name, "HOLDFAST_") {
			continue
		}
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		env = append(env, name+"="+value)
	}
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, cookieVar+"=") })
	slices.Sort(env)
	return append(env, cookieVar+"="+cookie)
}

func lookup(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
