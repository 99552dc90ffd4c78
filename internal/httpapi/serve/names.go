package serve

import (
	"strconv"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// CheckNames refuses too many names, none twice, and what is no name.
func CheckNames(n int, name func(i int) fleet.InstanceName) error {
	if n < 1 || n > fleet.MaxComparedNames {
		return fleet.Errorf(fleet.Invalid, "%d names given", n).At("/instances").WithHint("give 1 to " + strconv.Itoa(fleet.MaxComparedNames))
	}
	seen := make(map[fleet.InstanceName]bool, n)
	for i := range n {
		if err := fleet.ValidateName("/instances/"+strconv.Itoa(i), string(name(i))); err != nil {
			return err
		}
		if seen[name(i)] {
			return fleet.Errorf(fleet.Invalid, "%s is given twice", name(i)).At("/instances")
		}
		seen[name(i)] = true
	}
	return nil
}
