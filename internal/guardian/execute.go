package guardian

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// execute runs the command with only what the spec gives it.
func (s *supervisor) execute() (started process, err error) {
	env := s.launch.environment(s.state.Cookie)
	command := s.launch.command(s.step)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return process{}, fmt.Errorf("open standard input: %w", err)
	}
	defer func() { err = errors.Join(err, null.Close()) }()
	if s.launch.on() { // some programs open /dev/stdout and /dev/stderr again
		if err := unix.Fchown(int(s.output.in.Fd()), s.launch.UID, s.launch.UID); err != nil {
			return process{}, fmt.Errorf("hand over the output: %w", err)
		}
	}
	found := searchFor(command[0], lookup(env, "PATH"), s.launch.OwnName, identityOf(s.launch.Spec))
	return found.first(func(program string) (process, error) {
		started, err := s.family.start(program, command, &syscall.ProcAttr{
			Dir:   s.launch.Dir,
			Env:   env,
			Files: []uintptr{null.Fd(), s.output.in.Fd(), s.output.in.Fd()},
		})
		if err == nil {
			return started, nil
		}
		return started, s.explain(program, err)
	})
}

// explain finds out whether the working directory is missing: the kernel's error is the same as for a program. Then no
// other program can start either.
func (s *supervisor) explain(program string, err error) error {
	if info, dirErr := os.Stat(s.launch.Dir); dirErr != nil || !info.IsDir() {
		return fmt.Errorf("working directory %s: %s", s.launch.Dir, err) //nolint:errorlint // not an error of the program
	}
	if passedOver(err) {
		return err
	}
	return fmt.Errorf("execute %s: %w", program, err)
}
