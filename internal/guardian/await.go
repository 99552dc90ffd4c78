package guardian

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Await returns when the guardian of a name has ended, in any way, and at once without one; Status has the
// result of its command. The kernel reports the end: nothing is polled.
func (r *Runtime) Await(ctx context.Context, name fleet.InstanceName) error {
	dir, err := r.dir(name)
	if err != nil {
		return err
	}
	st, err := readState(dir)
	if err != nil {
		return err
	}
	if boot, err := bootID(); err != nil || st.BootID != boot {
		return err // pids of another boot are void
	}
	guardian, err := st.Guardian.open()
	if errors.Is(err, errGone) {
		return nil
	}
	if err == nil {
		err = errors.Join(guardian.wait(ctx), guardian.close())
	}
	if err != nil {
		return fmt.Errorf("await the guardian of %s: %w", name, err)
	}
	return nil
}

// BootID is the id of this boot of the machine, within which SinceBoot counts.
func BootID() (string, error) { return bootID() }
