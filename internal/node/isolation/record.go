package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// File is the name of the record, beside node.key.
const File = "uids.json"

// record is the content of the file.
type record struct {
	UIDs map[fleet.ProjectName]int `json:"uids"`
}

func (i *Isolation) load() error {
	path := filepath.Join(i.opt.Dir, File)
	raw, err := os.ReadFile(path) //nolint:gosec // in the node's own directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the uids of projects: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return fleet.Errorf(fleet.IllegalState, "%s is damaged: %w", path, err).
			WithHint("restore the file; or stop all commands of the node, remove the directories of its instances and replicas, then the file")
	}
	for project, uid := range r.UIDs {
		if uid <= 0 || i.taken[uid] {
			return fleet.Errorf(fleet.IllegalState, "%s gives uid %d to project %s, but root or another project has it too", path, uid, project)
		}
		i.uids[project], i.taken[uid] = uid, true
	}
	return nil
}

// save replaces the file atomically and durably; mu is held.
func (i *Isolation) save() error {
	raw, err := json.Marshal(record{UIDs: i.uids})
	if err != nil {
		return fmt.Errorf("encode the uids of projects: %w", err)
	}
	return durable.WriteFile(filepath.Join(i.opt.Dir, File), raw)
}
