package fleet

import (
	"math"
	"strings"
)

// What a node may say of its machine: more is a mistake.
const (
	maxDrivers = 8
	maxCores   = 1 << 16
	maxMemory  = 1 << 50
	maxGPUs    = 1 << 10
)

// Validate refuses what is no machine. A driver that this region does not know is kept: nothing asks
// for it.
func (f NodeFacts) Validate() error {
	if len(f.Address) > maxServerName || strings.ContainsAny(f.Address, "/@ \x00") {
		return Errorf(Invalid, "%.80q is no host", f.Address).At("nodeFacts/address").WithHint("a host name or an IP address, without a port")
	}
	if err := ValidateLabels("nodeFacts/labels", f.Labels); err != nil {
		return err
	}
	for name, value := range f.Labels {
		if strings.Contains(name+value, "\x00") {
			return Errorf(Invalid, "a label with a zero byte").At("nodeFacts/labels")
		}
	}
	if len(f.Drivers) > maxDrivers {
		return Errorf(Invalid, "%d drivers, allowed are %d", len(f.Drivers), maxDrivers).At("nodeFacts/drivers")
	}
	for _, d := range f.Drivers {
		if err := ValidateName("nodeFacts/drivers", string(d)); err != nil {
			return err
		}
	}
	if f.Separation != "" {
		if err := ValidateName("nodeFacts/isolation", string(f.Separation)); err != nil {
			return err
		}
	}
	r := f.Resources
	if math.IsNaN(r.CPU) || r.CPU < 0 || r.CPU > maxCores || r.Memory < 0 || r.Memory > maxMemory || r.GPUs < 0 || r.GPUs > maxGPUs {
		return Errorf(Invalid, "no machine has %g cores, %d bytes and %d GPUs", r.CPU, r.Memory, r.GPUs).At("nodeFacts")
	}
	return nil
}
