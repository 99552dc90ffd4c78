package declare

import (
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Documents are the parts of a declaration that may be large, as they were sent; nil where there is none.
type Documents struct{ Config, Overrides []byte }

// Instance makes the spec of an instance at a site, without the names of its bodies.
func Instance(put api.InstancePut, doc Documents, site fleet.SiteSpec) (fleet.InstanceSpec, error) {
	spec := fleet.InstanceSpec{
		Template: fleet.TemplateName(put.Template), TemplateGeneration: put.TemplateGeneration,
		Enabled: put.Enabled == nil || *put.Enabled, Durability: Durability(put.Durability, site), Run: put.Run,
		Secrets: put.Secrets, SecretEnv: put.SecretEnv,
	}
	if doc.Config != nil {
		spec.Config = &fleet.Content{Kind: fleet.ContentJSON}
	}
	if doc.Overrides != nil {
		spec.Overrides = &fleet.Content{Kind: fleet.ContentJSON}
	}
	if put.Artifact != "" {
		spec.Artifact = &fleet.Content{Kind: fleet.ContentArtifact, Hash: put.Artifact}
	}
	if err := CheckReason(put.Reason); err != nil {
		return spec, err
	}
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	if put.TemplateGeneration > 0 && put.Template == "" {
		return spec, fleet.Errorf(fleet.Invalid, "templateGeneration %d needs a template: give template, or omit templateGeneration", put.TemplateGeneration).At("/templateGeneration")
	}
	if put.Artifact != "" {
		if err := fleet.ValidateHash("/artifact", put.Artifact); err != nil {
			return spec, err
		}
	}
	return spec, checkGeneration("/templateGeneration", put.TemplateGeneration)
}

// CheckInstance refuses what is wrong in a declaration whatever its site.
func CheckInstance(put api.InstancePut) error {
	_, err := Instance(put, Documents{document(put.Config), document(put.Overrides)}, fleet.SiteSpec{})
	return err
}

// Durability is what was asked for, or the default at a site.
func Durability(asked fleet.Durability, site fleet.SiteSpec) fleet.Durability {
	switch {
	case asked != "":
		return asked
	case site.HasStandby():
		return fleet.DurabilitySync
	}
	return fleet.DurabilityAsync
}

// maxReason is the longest reason of a change, in bytes.
const maxReason = 1024

// CheckReason refuses a reason that is too long.
func CheckReason(reason string) error {
	if len(reason) > maxReason {
		return fleet.Errorf(fleet.Invalid, "the reason has %d bytes; the limit is %d", len(reason), maxReason).At("/reason")
	}
	return nil
}
