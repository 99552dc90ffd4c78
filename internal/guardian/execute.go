package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// execute runs the command with only what the spec gives it.
func (s *supervisor) execute() (started process, err error) {
	env := s.launch.environment(s.state.Cookie)
	command := s.launch.command(s.step)
	program, err := findProgram(command[0], lookup(env, "PATH", fallbackPath))
	if err != nil {
		return process{}, err
	}
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
	started, err = s.family.start(program, command, &syscall.ProcAttr{
		Dir:   s.launch.Dir,
		Env:   env,
		Files: []uintptr{null.Fd(), s.output.in.Fd(), s.output.in.Fd()},
	})
	if err != nil {
		return process{}, s.explain(program, err)
	}
	return started, nil
}

// explain finds out whether the program or the working directory is missing; the kernel's error is the same.
func (s *supervisor) explain(program string, err error) error {
	if info, dirErr := os.Stat(s.launch.Dir); dirErr != nil || !info.IsDir() {
		return fmt.Errorf("working directory %s: %w", s.launch.Dir, err)
	}
	return fmt.Errorf("execute %s: %w", program, err)
}

// findProgram searches the command's own PATH, not the guardian's.
func findProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) {
			continue // a relative entry would depend on where the guardian runs
		}
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("execute %s: %w", name, fs.ErrNotExist)
}
