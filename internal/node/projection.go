package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// projection keeps the config files of an active node equal to its store. It syncs nothing: a new process
// verifies each file by its hash before it starts anything with it, and derives it again if a power cut damaged
// it.
type projection struct {
	root  string // holds a directory per instance
	store *sqlite.Store

	mu       sync.Mutex
	verified map[fleet.InstanceName]stamp
}

// stamp describes a file with verified content; it is not read again while it looks the same.
type stamp struct {
	hash    fleet.Hash
	path    string
	size    int64
	changed time.Time
}

func (s stamp) looks(path string, info fs.FileInfo) bool {
	return s.path == path && s.size == info.Size() && s.changed.Equal(info.ModTime())
}

const tempPattern = ".config-*.tmp"

func (p *projection) dir(name fleet.InstanceName) string { return filepath.Join(p.root, string(name)) }

// path is where an instance finds its config.
func (p *projection) path(name fleet.InstanceName, kind fleet.ContentKind) string {
	return filepath.Join(p.dir(name), fileName(kind))
}

func fileName(kind fleet.ContentKind) string {
	if kind == fleet.ContentArtifact {
		return "config.bin"
	}
	return "config.json"
}

// draft is a complete config file beside its place.
type draft struct {
	p       *projection
	name    fleet.InstanceName
	content fleet.Content
	temp    string
	changed time.Time // of a redraft
}

// prepare writes a config beside its place, so that only a rename is left between the stop of the old process
// and the start of the new one. The user owns the file; uid 0 is the agent's user.
func (p *projection) prepare(ctx context.Context, name fleet.InstanceName, c fleet.Content, uid int) (*draft, error) {
	return p.draft(name, c, uid, func(w io.Writer) error { return p.store.WriteContent(ctx, c, w) })
}

func (p *projection) draft(name fleet.InstanceName, c fleet.Content, uid int, write func(io.Writer) error) (*draft, error) {
	if err := os.MkdirAll(p.dir(name), 0o700); err != nil {
		return nil, fmt.Errorf("make instance directory: %w", err)
	}
	tmp, err := os.CreateTemp(p.dir(name), tempPattern)
	if err != nil {
		return nil, fmt.Errorf("create config: %w", err)
	}
	d := &draft{p: p, name: name, content: c, temp: tmp.Name()}
	err = write(tmp)
	if uid != 0 && err == nil {
		err = tmp.Chown(uid, uid) // of the open file: its user may have replaced the path
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("write config: %w", err), d.drop())
	}
	return d, nil
}

// place renames the config into its place, and removes the file of the other kind.
func (d *draft) place() error {
	path := d.p.path(d.name, d.content.Kind)
	if err := os.Rename(d.temp, path); err != nil {
		return errors.Join(fmt.Errorf("put config in place: %w", err), d.drop())
	}
	if err := removeFile(d.p.path(d.name, otherKind(d.content.Kind))); err != nil {
		return err
	}
	return d.p.remember(d.name, d.content)
}

func otherKind(kind fleet.ContentKind) fleet.ContentKind {
	if kind == fleet.ContentArtifact {
		return fleet.ContentJSON
	}
	return fleet.ContentArtifact
}

func (d *draft) drop() error { return removeFile(d.temp) }

// ensure derives the config again if it is missing or different.
func (p *projection) ensure(ctx context.Context, name fleet.InstanceName, c fleet.Content, uid int) error {
	right, err := p.matches(name, c, uid)
	if err != nil || right {
		return err
	}
	d, err := p.prepare(ctx, name, c, uid)
	if err != nil {
		return err
	}
	return d.place()
}

// matches tells whether the file has exactly the content, belongs to the user, and is the only one.
func (p *projection) matches(name fleet.InstanceName, c fleet.Content, uid int) (bool, error) {
	path := p.path(name, c.Kind)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at config: %w", err)
	}
	if info.Size() != c.Size || !info.Mode().IsRegular() || !ownedBy(info, uid) {
		return false, nil
	}
	if known := p.lastSeen(name); known.looks(path, info) {
		return known.hash == c.Hash, nil
	}
	if other, err := os.Lstat(p.path(name, otherKind(c.Kind))); err == nil && other.Mode().IsRegular() {
		return false, nil // a power cut undid its removal
	}
	got, err := hashFile(path)
	if err != nil || got != c.Hash {
		return false, err
	}
	return true, p.remember(name, c)
}

// ownedBy tells whether a file belongs to a user; uid 0 is the agent's user.
func ownedBy(info fs.FileInfo, uid int) bool {
	if uid == 0 {
		uid = os.Geteuid()
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

// asSeen tells whether the file still looks as it did when its content was verified.
func (p *projection) asSeen(name fleet.InstanceName, c fleet.Content) bool {
	known, path := p.lastSeen(name), p.path(name, c.Kind)
	if known.hash != c.Hash {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && known.looks(path, info)
}

// differs hashes the delivered file, whatever it looked like before, and says why it is not the content.
func (p *projection) differs(name fleet.InstanceName, c fleet.Content) (why string, err error) {
	path := p.path(name, c.Kind)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fleet.FileMissing, nil
	case err != nil:
		return "", fmt.Errorf("look at config: %w", err)
	case !info.Mode().IsRegular() || info.Size() != c.Size:
		return fleet.FileChanged, nil
	}
	if got, err := hashFile(path); err != nil || got == c.Hash {
		return "", err
	}
	return fleet.FileChanged, nil
}

// forget has the next check read the file again.
func (p *projection) forget(name fleet.InstanceName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.verified, name)
}

// none tells whether a name has no directory.
func (p *projection) none(name fleet.InstanceName) bool {
	_, err := os.Lstat(p.dir(name))
	return errors.Is(err, fs.ErrNotExist)
}

func (p *projection) remember(name fleet.InstanceName, c fleet.Content) error {
	path := p.path(name, c.Kind)
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at config: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verified == nil {
		p.verified = map[fleet.InstanceName]stamp{}
	}
	p.verified[name] = stamp{c.Hash, path, info.Size(), info.ModTime()}
	return nil
}

// remove deletes an instance's config. Other files in its directory stay.
func (p *projection) remove(name fleet.InstanceName) error {
	p.mu.Lock()
	delete(p.verified, name)
	p.mu.Unlock()
	if err := errors.Join(
		removeFile(p.path(name, fleet.ContentJSON)), removeFile(p.path(name, fleet.ContentArtifact)),
		removeFile(filepath.Join(p.dir(name), spareFile)), p.tidy(name),
	); err != nil {
		return err
	}
	_ = os.Remove(p.dir(name)) // succeeds only if it is empty, as intended
	return nil
}

// tidy removes files that a kill left unfinished. The caller has the instance's lane.
func (p *projection) tidy(name fleet.InstanceName) error {
	left, err := filepath.Glob(filepath.Join(p.dir(name), tempPattern))
	if err != nil {
		return fmt.Errorf("look for drafts: %w", err)
	}
	var errs []error
	for _, path := range left {
		errs = append(errs, removeFile(path))
	}
	return errors.Join(errs...)
}

// tidyAll is tidy for every directory, also of names without an accepted delivery. It runs before the first
// delivery.
func (p *projection) tidyAll() error {
	left, err := filepath.Glob(filepath.Join(p.root, "*", tempPattern))
	spare, other := filepath.Glob(filepath.Join(p.root, "*", spareFile))
	if err := errors.Join(err, other); err != nil {
		return fmt.Errorf("look for drafts: %w", err)
	}
	var errs []error
	for _, path := range append(left, spare...) {
		errs = append(errs, removeFile(path))
		_ = os.Remove(filepath.Dir(path)) // succeeds only if it is empty, as intended
	}
	return errors.Join(errs...)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove config: %w", err)
	}
	return nil
}

func hashFile(path string) (_ fleet.Hash, err error) {
	// The directory's user may have put a link or a FIFO there since the last check.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // below the node's own directory
	if err != nil {
		return "", fmt.Errorf("open config: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read config: %w", err)
	}
	return fleet.Hash(hex.EncodeToString(sum.Sum(nil))), nil
}
