package declare

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Documents are the parts of a request that may be large, as they were sent.
type Documents struct{ Config, Overrides []byte }

// Instance makes the spec of an instance at a site, without the names of its bodies.
func Instance(put api.InstancePut, doc Documents, site fleet.SiteSpec) (fleet.InstanceSpec, error) {
	spec := fleet.InstanceSpec{
		Template: fleet.TemplateName(put.Template), TemplateGeneration: put.TemplateGeneration,
		Enabled: put.Enabled == nil || *put.Enabled, Durability: put.Durability, Run: put.Run,
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
	spec.Durability = DurabilityOf(put.Durability, site)
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	return spec, checkInstance(put)
}

// checkInstance refuses what the spec does not show.
func checkInstance(put api.InstancePut) error {
	if err := CheckTexts(put.Labels, put.Reason); err != nil {
		return err
	}
	if put.TemplateGeneration > 0 && put.Template == "" {
		return fleet.Errorf(fleet.Invalid, "templateGeneration %d needs a template: give template, or omit templateGeneration", put.TemplateGeneration).At("/templateGeneration")
	}
	if put.Artifact != "" {
		if err := fleet.ValidateHash("/artifact", put.Artifact); err != nil {
			return err
		}
	}
	return checkGeneration("/templateGeneration", put.TemplateGeneration)
}

// CheckInstance refuses what is wrong in a declaration whatever its site.
func CheckInstance(put api.InstancePut) error {
	spec, err := Instance(put, Documents{document(put.Config), document(put.Overrides)}, fleet.SiteSpec{})
	if err != nil {
		return err
	}
	_, _, err = RunSection(spec.Run, fleet.ProjectName(put.Project))
	return err
}

// DurabilityOf is what was asked for, or what suits the site.
func DurabilityOf(asked fleet.Durability, site fleet.SiteSpec) fleet.Durability {
	switch {
	case asked != "":
		return asked
	case site.HasStandby():
		return fleet.DurabilitySync
	}
	return fleet.DurabilityAsync
}

// MaxReason is the longest reason of a change.
const MaxReason = 1024

// CheckTexts checks what comes with every declaration.
func CheckTexts(labels map[string]string, reason string) error {
	if len(reason) > MaxReason {
		return fleet.Errorf(fleet.Invalid, "the reason has %d bytes; the limit is %d", len(reason), MaxReason).At("/reason")
	}
	return fleet.ValidateLabels("/labels", labels)
}

// RunSection is a run section in the form that its hash is of.
func RunSection(run *fleet.Run, project fleet.ProjectName) (json.RawMessage, fleet.Hash, error) {
	if run == nil {
		return nil, "", nil
	}
	text, err := json.Marshal(fleet.RunSection{Run: *run, Project: project})
	if err != nil {
		return nil, "", fleet.Errorf(fleet.Invalid, "cannot encode the run section: %w", err).At("/run")
	}
	if text, err = compose.Canonical(text, compose.Limits{MaxBytes: fleet.MaxRun}); err != nil {
		return nil, "", fleet.Errorf(fleet.Invalid, "invalid run section: %w", err).At("/run")
	}
	return text, compose.HashOf(text), nil
}
