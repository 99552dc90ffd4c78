package replicas

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// names are the node's variables in a replica's environment; they also replace ${NAME} in its command,
// environment and files.
func (k *Keeper) names(r known, def fleet.Definition, config string) map[string]string {
	names := map[string]string{
		"HOLDFAST_DEPLOYMENT": string(r.Deployment), "HOLDFAST_REPLICA": string(r.ID), "HOLDFAST_NODE": string(k.opt.Node),
		"HOLDFAST_SITE": string(k.opt.Site), "HOLDFAST_EPOCH": strconv.FormatInt(r.ProcessVersion, 10),
		"HOLDFAST_REVISION": strconv.FormatInt(r.Revision, 10),
	}
	if config != "" {
		names["HOLDFAST_CONFIG"] = config
	}
	if len(r.GPUs) > 0 && r.Driver != fleet.DriverDocker { // a container has no other GPUs
		names["CUDA_VISIBLE_DEVICES"], names["CUDA_DEVICE_ORDER"] = visible(r.GPUs), "PCI_BUS_ID"
	}
	for i, port := range def.Ports {
		at := strconv.Itoa(r.Ports[port.Name])
		names["PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_"))] = at
		if i == 0 {
			names["PORT"] = at
		}
	}
	return names
}

// expand replaces the names of the node.
func expand(text string, names map[string]string) string {
	return fleet.Replace(text, func(name string) (string, bool) { value, ours := names[name]; return value, ours })
}

// expanded gives a process with its names replaced.
func expanded(p fleet.Process, names map[string]string) fleet.Process {
	all := func(in []string) []string {
		out := make([]string, len(in))
		for i, s := range in {
			out[i] = expand(s, names)
		}
		return out
	}
	p.Command, p.Args = all(p.Command), all(p.Args)
	p.PreStart = slices.Clone(p.PreStart)
	for i, command := range p.PreStart {
		p.PreStart[i] = all(command)
	}
	env := make(map[string]string, len(p.Env))
	for name, value := range p.Env {
		env[name] = expand(value, names)
	}
	p.Env = env
	p.Files = slices.Clone(p.Files)
	for i := range p.Files {
		p.Files[i].Content = expand(p.Files[i].Content, names)
	}
	return p
}

// envOf is a replica's environment: its own variables, then the node's, which win.
func envOf(p fleet.Process, names map[string]string) []string {
	env := make([]string, 0, len(p.Env)+len(names))
	for name, value := range p.Env {
		if _, ours := names[name]; !ours && !strings.HasPrefix(name, "HOLDFAST_") {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range names {
		env = append(env, name+"="+value)
	}
	sort.Strings(env)
	return env
}

// writeFiles writes a replica's files below its directory. All users may read them, so a container can run as
// any user; on the machine the node's own directory above keeps other users out. The root keeps every path
// below it, also where a replica made links in its directory. It opens no file that the replica left: opening a
// FIFO may block forever.
func writeFiles(dir string, files []fleet.ProcessFile) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see below
		return fleet.Errorf(fleet.Unavailable, "make the replica's directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fleet.Errorf(fleet.Unavailable, "open the replica's directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it any more
	for _, file := range files {
		path := filepath.Clean(file.Path)
		if err := makeDirs(root, filepath.Dir(path)); err != nil {
			return fleet.Errorf(fleet.ApplyFailed, "make the directory of %s: %w", file.Path, err)
		}
		if err := replaceFile(root, path, file.Content); err != nil {
			return fleet.Errorf(fleet.ApplyFailed, "write %s: %w", file.Path, err)
		}
	}
	return nil
}

// makeDirs makes the directories of a path, and replaces whatever is neither a directory nor a link to one.
func makeDirs(root *os.Root, path string) error {
	for i := range len(path) {
		if path[i] == filepath.Separator {
			if err := makeDir(root, path[:i]); err != nil {
				return err
			}
		}
	}
	return makeDir(root, path)
}

func makeDir(root *os.Root, path string) error {
	is, err := root.Lstat(path)
	switch {
	case err == nil && is.IsDir():
		return nil
	case err == nil && is.Mode()&fs.ModeSymlink != 0:
		return root.MkdirAll(path, 0o755)
	case err == nil:
		err = root.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	return root.Mkdir(path, 0o755)
}

// replaceFile writes a new file in place of whatever exists, except a file that already has this content: a
// command before the program may have changed its owner.
func replaceFile(root *os.Root, path, content string) error {
	if holds(root, path, content) {
		return nil
	}
	if err := root.RemoveAll(path); err != nil {
		return err
	}
	file, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	return errors.Join(err, file.Close())
}

// holds tells whether a path is a regular file of that content. It opens nothing that could block.
func holds(root *os.Root, path, content string) bool {
	is, err := root.Lstat(path)
	if err != nil || !is.Mode().IsRegular() || is.Size() != int64(len(content)) {
		return false
	}
	if st, ok := is.Sys().(*syscall.Stat_t); !ok || st.Nlink != 1 {
		return false
	}
	file, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // only read
	has, err := io.ReadAll(io.LimitReader(file, is.Size()+1))
	return err == nil && string(has) == content
}
