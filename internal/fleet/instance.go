package fleet

import "strings"

// InstanceSpec is the declaration of an instance, bodies by hash. Exactly one of Config, Template and Artifact is
// set.
type InstanceSpec struct {
	Config             *Content     `json:"config,omitempty"`
	Template           TemplateName `json:"template,omitempty"`
	TemplateGeneration int64        `json:"templateGeneration,omitempty"`
	Overrides          *Content     `json:"overrides,omitempty"`
	Artifact           *Content     `json:"artifact,omitempty"`
	Enabled            bool         `json:"enabled"`
	Durability         Durability   `json:"durability"`
	Run                *Run         `json:"run,omitempty"`
	// Secrets are JSON pointers into the final config, SecretEnv names of Run's environment,
	// whose values are shown redacted.
	Secrets   []string `json:"secrets,omitempty"`
	SecretEnv []string `json:"secretEnv,omitempty"`
}

// Validate checks what does not depend on the region's other objects.
func (s InstanceSpec) Validate() error {
	if err := s.validateSource(); err != nil {
		return err
	}
	switch {
	case s.Overrides != nil && s.Template == "":
		return Errorf(Invalid, "overrides need a template: give template, or change the config itself").At("/overrides")
	case s.Artifact != nil && len(s.Secrets) > 0:
		return Errorf(Invalid, "an artifact cannot have secrets by path").At("/secrets").
			WithHint("mark paths only in a JSON config")
	case s.Durability != DurabilitySync && s.Durability != DurabilityAsync:
		return Errorf(Invalid, "unknown durability %.40q; use sync or async", s.Durability).At("/durability")
	}
	if s.Template != "" {
		if err := s.Template.Validate("/template"); err != nil {
			return err
		}
	}
	if err := ValidateSecrets("/secrets", s.Secrets); err != nil {
		return err
	}
	if err := validateSecretEnv(s.SecretEnv); err != nil {
		return err
	}
	if s.Run != nil {
		return s.Run.Validate("/run")
	}
	return nil
}

// validateSource requires exactly one source of the config.
func (s InstanceSpec) validateSource() error {
	var given []string
	for _, source := range []struct {
		name string
		set  bool
	}{{"config", s.Config != nil}, {"template", s.Template != ""}, {"artifact", s.Artifact != nil}} {
		if source.set {
			given = append(given, source.name)
		}
	}
	switch len(given) {
	case 0:
		return Errorf(Invalid, "config is required: give one of config, template, artifact").At("/")
	case 1:
		return nil
	}
	return Errorf(Invalid, "%s are given together: give one of config, template, artifact", strings.Join(given, ", ")).At("/")
}

// Bodies lists the bodies that the spec refers to; the write protects them from collection.
func (s InstanceSpec) Bodies() []Hash {
	var out []Hash
	for _, c := range []*Content{s.Config, s.Overrides, s.Artifact} {
		if c != nil {
			out = append(out, c.Hash)
		}
	}
	return out
}
