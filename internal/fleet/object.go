package fleet

import (
	"cmp"
	"encoding/json"
	"time"
)

// ObjectKind is the kind of a declared object.
type ObjectKind string

// The kinds that a person can declare.
const (
	KindOrganization ObjectKind = "organization"
	KindProject      ObjectKind = "project"
	KindService      ObjectKind = "service"
	KindSite         ObjectKind = "site"
	KindTemplate     ObjectKind = "template"
	KindInstance     ObjectKind = "instance"
)

// ApplySetLabel is the label of objects that are applied and pruned together.
const ApplySetLabel = "holdfast.dev/apply-set"

// ObjectKey names one object of a region; Scope is the site of an instance, else "".
type ObjectKey struct {
	Kind  ObjectKind
	Scope string
	Name  string
}

// String is the key in one word, for example instance/plant-1/press-7.
func (k ObjectKey) String() string {
	if k.Scope == "" {
		return string(k.Kind) + "/" + k.Name
	}
	return string(k.Kind) + "/" + k.Scope + "/" + k.Name
}

// ProjectKey names a project.
func ProjectKey(name ProjectName) ObjectKey { return ObjectKey{Kind: KindProject, Name: string(name)} }

// OrganizationKey names an organization.
func OrganizationKey(name string) ObjectKey { return ObjectKey{Kind: KindOrganization, Name: name} }

// ServiceKey names a service.
func ServiceKey(name string) ObjectKey { return ObjectKey{Kind: KindService, Name: name} }

// TemplateKey names a template.
func TemplateKey(name string) ObjectKey { return ObjectKey{Kind: KindTemplate, Name: name} }

// InstanceKey names an instance of a site.
func InstanceKey(site SiteName, name InstanceName) ObjectKey {
	return ObjectKey{Kind: KindInstance, Scope: string(site), Name: string(name)}
}

// Object is a declared object as stored. Its ETag is its resource version, which covers only the declared part.
type Object struct {
	ObjectKey
	// Region created the object, if this is a copy of what another region owns; "" for an object of this region.
	Region          RegionName
	Version         CopyVersion
	UID             string
	Project         ProjectName
	Service         string // of the project, "" if none
	Labels          map[string]string
	Generation      int64
	ResourceVersion int64
	Spec            json.RawMessage
	Syncing         json.RawMessage
	CreatedBy       string
	CreatedAt       time.Time
	UpdatedAt       time.Time
	DeletingSince   *time.Time
}

// Syncing shows which region owns an object and which regions have it, the owner included (M28).
type Syncing struct {
	OwningRegion string   `json:"owningRegion"`
	Regions      []string `json:"regions"`
	// Fence is set on a policy holder while its owner waits for another region to claim it.
	Fence *Fence `json:"fence,omitempty"`
	// TookOver is the state that the owner had of the object when it took it over.
	TookOver *TookOver `json:"tookOver,omitempty"`
}

// SyncingNow is which region owns an object and which have it, nothing if that was never computed.
func (o *Object) SyncingNow() Syncing {
	var s Syncing
	if json.Unmarshal(o.Syncing, &s) != nil {
		return Syncing{} // the next write computes it
	}
	return s
}

// CheckOwner refuses a write of the object in a region that does not own it (M27, M39).
func (o *Object) CheckOwner(region string) error {
	if owner := o.SyncingNow().OwningRegion; owner != "" && owner != region {
		return OwnedBy(o.Named(region), owner)
	}
	return nil
}

// Named is the name that the object has in every region. Self is this region.
func (o *Object) Named(self string) CopyKey {
	return CopyKey{Region: RegionName(cmp.Or(string(o.Region), self)), ObjectKey: o.ObjectKey}
}

// OwnedBy is the error of a write outside the owning region.
func OwnedBy(key CopyKey, owner string) *Error {
	e := Errorf(NotOwner, "region %s owns %s", owner, key.ObjectKey).WithHint("send the request to region " + owner)
	e.Owner, e.Region = owner, string(key.Region)
	return e
}

// Ambiguous is the error of a plain name that objects of several regions have.
func Ambiguous(key ObjectKey, one, other string) *Error {
	return Errorf(Conflict, "several regions have %s", key).At("region").
		WithHint("name one: " + one + "/" + key.Name + " or " + other + "/" + key.Name)
}

const (
	maxLabels     = 64
	maxLabelValue = 256
)

// ValidateLabels limits labels, so that events and lists stay small.
func ValidateLabels(field string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return Errorf(Invalid, "%d labels given; the limit is %d", len(labels), maxLabels).At(field)
	}
	for name, value := range labels {
		if name == "" || len(name) > maxLabelValue || len(value) > maxLabelValue {
			return Errorf(Invalid, "invalid label: want a name of 1 to %d bytes and a value of up to %d", maxLabelValue, maxLabelValue).At(field)
		}
	}
	return nil
}
