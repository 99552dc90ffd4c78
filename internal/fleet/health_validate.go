package fleet

import (
	"net/url"
	"slices"
	"strings"
)

const (
	leastInterval, mostInterval = 0.1, 3600.0
	maxThreshold                = 1000
	maxHealthPath               = 1024
)

// The fields of the checks of a process.
const (
	HealthField    = processField + "/health"
	ReadinessField = processField + "/readiness"
)

// validateChecks checks the declared checks.
func (p Process) validateChecks() error {
	if p.Health != nil {
		if err := p.Health.validate(HealthField, p.Ports); err != nil {
			return err
		}
	}
	if p.Readiness == nil {
		return nil
	}
	return p.Readiness.validate(ReadinessField, p.Ports)
}

// validate checks the declared part of a check, with defaults for the rest. A probe that outlasts its interval
// would overlap with the next (S111).
func (h HealthCheck) validate(field string, ports []ProcessPort) error {
	switch h.Type {
	case "", HealthHTTP, HealthTCP, HealthNone:
	default:
		return Errorf(Invalid, "unknown type of check %.40q", h.Type).At(field + "/type").WithHint("use http, tcp or none")
	}
	if h.Port != "" && len(ports) > 0 && !slices.ContainsFunc(ports, func(p ProcessPort) bool { return p.Name == h.Port }) {
		return Errorf(Invalid, "unknown port %.80q", h.Port).At(field + "/port").WithHint("use a name from ports")
	}
	if err := h.validateHTTP(field); err != nil {
		return err
	}
	return h.validateNumbers(field)
}

func (h HealthCheck) validateHTTP(field string) error {
	switch {
	case h.Path != "" && !ValidHealthPath(h.Path):
		return Errorf(Invalid, "%s", NoHealthPath).At(field + "/path")
	case h.Method != "" && !slices.Contains([]string{"GET", "HEAD", "POST"}, h.Method):
		return Errorf(Invalid, "invalid method %.40q", h.Method).At(field + "/method").WithHint("use GET, HEAD or POST")
	case !ValidHealthStatus(h.ExpectedStatus):
		return Errorf(Invalid, "invalid status %d: want 200 to 599", h.ExpectedStatus).
			At(field + "/expected_status").WithHint("use 0 for any of 200 to 399")
	}
	return nil
}

// NoHealthPath describes a valid path of a check.
const NoHealthPath = "a path starts with /, has neither spaces nor control characters, and % only before two hexadecimal digits"

// ValidHealthPath reports whether a check can request a path: one that makes no valid request could never pass.
func ValidHealthPath(path string) bool {
	_, err := url.Parse("http://host" + path)
	return err == nil && strings.HasPrefix(path, "/") && len(path) <= maxHealthPath && !strings.Contains(path, " ")
}

// ValidHealthStatus reports whether a response can have a status, 0 for any good one: those below 200 are only
// interim.
func ValidHealthStatus(status int) bool { return status == 0 || status >= 200 && status <= 599 }

func (h HealthCheck) validateNumbers(field string) error {
	given := h
	h.Type = HealthTCP
	h = h.WithDefaults()
	switch {
	case !(h.Interval >= leastInterval && h.Interval <= mostInterval):
		return Errorf(Invalid, "invalid interval: want %g to %g seconds", leastInterval, mostInterval).At(field + "/interval")
	case !(h.Timeout > 0):
		return Errorf(Invalid, "invalid timeout: want more than 0 seconds").At(field + "/timeout")
	case given.Timeout > 0 && given.Interval > 0 && h.Timeout >= h.Interval:
		return Errorf(Invalid, "the timeout of %g seconds is not less than the interval of %g", h.Timeout, h.Interval).At(field + "/timeout").
			WithHint("a probe that outlasts its interval would overlap with the next one")
	case h.UnhealthyThreshold < 0 || h.UnhealthyThreshold > maxThreshold:
		return Errorf(Invalid, "invalid threshold: want 1 to %d", maxThreshold).At(field + "/unhealthy_threshold")
	case h.HealthyThreshold < 0 || h.HealthyThreshold > maxThreshold:
		return Errorf(Invalid, "invalid threshold: want 1 to %d", maxThreshold).At(field + "/healthy_threshold")
	}
	return nil
}

// CheckProbe rejects a complete check, of a field of the spec, that could overlap with itself.
func (h HealthCheck) CheckProbe(field string) error {
	if h.Type != HealthNone && h.Timeout >= h.Interval {
		return Errorf(Invalid, "the timeout of %g seconds is not less than the interval of %g", h.Timeout, h.Interval).
			At(field + "/timeout").WithHint("a probe that outlasts its interval would overlap with the next one")
	}
	return nil
}
