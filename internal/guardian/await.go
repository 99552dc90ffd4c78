package guardian

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Await returns when the guardian of a name has ended, however it did, and at once where there is
// none; Status says what became of its command. It is told by the kernel and polls nothing.
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
		return err // pids of another boot mean nothing
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

// BootID names this boot of the machine: SinceBoot counts within it.
func BootID() (string, error) { return bootID() }
