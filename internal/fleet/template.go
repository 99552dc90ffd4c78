package fleet

import "strconv"

// TemplateSpec is a base document and other templates that are merged over it in order, each pinned to the
// generation it had when this one was written.
type TemplateSpec struct {
	Base         Content       `json:"base"`
	Compositions []TemplatePin `json:"compositions,omitempty"`
	// Secrets are JSON pointers into the final config of every instance of this template.
	Secrets []string `json:"secrets,omitempty"`
}

// TemplatePin names one generation of a template.
type TemplatePin struct {
	Name       TemplateName `json:"name"`
	Generation int64        `json:"generation"`
}

// References are the templates that are merged.
func (t TemplateSpec) References() []Reference {
	refers := make([]Reference, len(t.Compositions))
	for i, c := range t.Compositions {
		refers[i] = Reference{Key: ObjectKey{Kind: KindTemplate, Name: string(c.Name)}, Field: "/compositions/" + strconv.Itoa(i), Pinned: true}
	}
	return refers
}

// MaxCompositions limits how many templates one template may merge.
const MaxCompositions = 32

// Validate rejects invalid names, and a template that refers to itself.
func (t TemplateSpec) Validate(self TemplateName) error {
	if len(t.Compositions) > MaxCompositions {
		return Errorf(Invalid, "%d compositions given; the limit is %d", len(t.Compositions), MaxCompositions).At("/compositions")
	}
	for i, c := range t.Compositions {
		at := "/compositions/" + strconv.Itoa(i)
		if err := ValidateName(at, string(c.Name)); err != nil {
			return err
		}
		if c.Name == self {
			return Errorf(Invalid, "template %s refers to itself", self).At(at)
		}
	}
	return ValidateSecrets("/secrets", t.Secrets)
}

// Bodies lists the bodies that the spec refers to; the write protects them from collection.
func (t TemplateSpec) Bodies() []Hash { return []Hash{t.Base.Hash} }
