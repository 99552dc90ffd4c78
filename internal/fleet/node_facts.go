package fleet

import (
	"math"
	"strings"
)

// Limits of the facts about a machine.
const (
	maxDrivers = 8
	maxCores   = 1 << 16
	maxMemory  = 1 << 50
	maxGPUs    = 1 << 10
)

// Validate rejects impossible facts. It keeps an unknown driver: no deployment requests it.
func (f NodeFacts) Validate() error {
	if len(f.Address) > maxServerName || strings.ContainsAny(f.Address, "/@ \x00") {
		return Errorf(Invalid, "invalid host %.80q", f.Address).At("nodeFacts/address").WithHint("use a host name or an IP address, without a port")
	}
	if err := ValidateLabels("nodeFacts/labels", f.Labels); err != nil {
		return err
	}
	for name, value := range f.Labels {
		if strings.Contains(name+value, "\x00") {
			return Errorf(Invalid, "a label contains a NUL byte").At("nodeFacts/labels")
		}
	}
	if len(f.Drivers) > maxDrivers {
		return Errorf(Invalid, "%d drivers given; the limit is %d", len(f.Drivers), maxDrivers).At("nodeFacts/drivers")
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
		return Errorf(Invalid, "implausible resources: %g cores, %d bytes and %d GPUs", r.CPU, r.Memory, r.GPUs).At("nodeFacts")
	}
	return nil
}
