package guardian

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ownProgram is this process's executable. The kernel resolves the link without a look at the folders on its way,
// so every user may run it whom the file itself allows.
const ownProgram = "/proc/self/exe"

// search is what a command stands for: the files to try in order, the first that its user may execute wins.
type search struct {
	command string
	folders []string // where a command without a slash is looked up
	tried   []string
	passed  []string // what the user may not execute, and why
	by      identity
}

// searchFor looks a command up as execvp does, in its own PATH and then in the system's. Last, own is the name of the
// guardian's executable.
func searchFor(command, path, own string, by identity) *search {
	s := &search{command: command, by: by}
	if strings.Contains(command, "/") {
		s.tried = []string{command}
		return s
	}
	for dir := range strings.SplitSeq(path+":"+systemPath, ":") {
		// A relative entry would depend on where the guardian runs.
		if filepath.IsAbs(dir) && !slices.Contains(s.folders, filepath.Clean(dir)) {
			s.folders = append(s.folders, filepath.Clean(dir))
		}
	}
	for _, dir := range s.folders {
		s.tried = append(s.tried, filepath.Join(dir, command))
	}
	if command == own {
		s.tried = append(s.tried, ownProgram)
	}
	return s
}

// first starts the first file that exists and that the kernel lets the user execute.
func (s *search) first(start func(program string) (process, error)) (process, error) {
	for _, program := range s.tried {
		if len(s.folders) > 0 && !exists(program) {
			continue
		}
		started, err := start(program)
		if err == nil || !passedOver(err) {
			return started, err
		}
		if len(s.folders) == 0 {
			return process{}, s.refused(program, err)
		}
		s.passed = append(s.passed, program+" ("+s.by.why(program, err)+")")
	}
	return process{}, s.notFound()
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// passedOver are the errors for which execvp tries the next folder.
func passedOver(err error) bool {
	return slices.ContainsFunc([]error{syscall.EACCES, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// refused is the error for a command that names a file.
func (s *search) refused(program string, err error) error {
	why := s.by.why(program, err)
	if why == err.Error() {
		return fmt.Errorf("execute %s: %w", program, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		why += "; " + s.install()
	}
	return fmt.Errorf("execute %s: %w: %s", program, err, why)
}

// notFound tells where a command was looked up, and what was found but cannot be executed.
func (s *search) notFound() error {
	text := fmt.Sprintf("program %q not found in %s", s.command, strings.Join(s.folders, ":"))
	if len(s.passed) == 0 {
		return fmt.Errorf("%s; install it there on the node, or give its path", text)
	}
	return fmt.Errorf("%s; passed over: %s; %s", text, strings.Join(s.passed, ", "), s.install())
}

func (s *search) install() string {
	return fmt.Sprintf("install it where user %d may execute it, for example in /usr/local/bin", s.by.uid)
}

// identity is who executes a program.
type identity struct {
	uid    int
	groups []int
	dir    string // the working directory
	hide   string // what it does not see but for its working directory
}

// identityOf is the user of a spec's commands.
func identityOf(s Spec) identity {
	if s.on() {
		return identity{uid: s.UID, groups: []int{s.UID}, dir: s.Dir, hide: s.Hide}
	}
	groups, _ := os.Getgroups() // without them an explanation is less exact
	return identity{uid: os.Geteuid(), groups: append(groups, os.Getegid()), dir: s.Dir}
}

// why explains the kernel's refusal to execute a file: by permissions, where they show it, else in its own words.
func (i identity) why(program string, err error) string {
	if program == ownProgram {
		return cmp.Or(i.file(ownProgram), err.Error())
	}
	if i.hidden(program) {
		return "the node's data directory is hidden from commands"
	}
	target, _ := filepath.EvalSymlinks(program) // "" if a link leads nowhere
	return cmp.Or(i.way(program), i.way(target), i.file(program), i.interpreter(program), err.Error())
}

func (i identity) hidden(path string) bool {
	return i.hide != "" && below(i.hide, path) && !below(i.dir, path)
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// way is the first folder on the way to a file that the user may not search, in words.
func (i identity) way(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	var dirs []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == "/" {
			break
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if info, err := os.Stat(dir); err == nil && !i.may(info) {
			return fmt.Sprintf("user %d may not search %s, %s", i.uid, dir, ownership(info))
		}
	}
	return ""
}

// file tells whether the file itself can be executed.
func (i identity) file(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return ""
	case !info.Mode().IsRegular():
		return "it is not a regular file"
	case info.Mode()&0o111 == 0:
		return "it is not executable, mode " + octal(info)
	case !i.may(info):
		return fmt.Sprintf("user %d may not execute it, %s", i.uid, ownership(info))
	}
	return ""
}

// interpreter tells whether a script's interpreter is what cannot be executed.
func (i identity) interpreter(path string) string {
	f, err := os.Open(path) //nolint:gosec // the command of a spec; only its first line is read
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	rest, script := strings.CutPrefix(line, "#!")
	words := strings.Fields(rest)
	if !script || len(words) == 0 {
		return ""
	}
	if _, err := os.Stat(words[0]); err != nil {
		return fmt.Sprintf("its interpreter %s is missing", words[0])
	}
	if why := cmp.Or(i.way(words[0]), i.file(words[0])); why != "" {
		return fmt.Sprintf("its interpreter %s: %s", words[0], why)
	}
	return ""
}

// may tells whether the mode gives the user execute or search permission; root needs it of anybody.
func (i identity) may(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	mode := info.Mode().Perm()
	switch {
	case i.uid == 0:
		return info.IsDir() || mode&0o111 != 0
	case int(st.Uid) == i.uid:
		return mode&0o100 != 0
	case slices.Contains(i.groups, int(st.Gid)):
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

func ownership(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "mode " + octal(info)
	}
	return fmt.Sprintf("which belongs to user %d, mode %s", st.Uid, octal(info))
}

func octal(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }
