// Package declare makes the specs of declarations, and refuses what is wrong in them. The CLI asks it before it sends
// anything, and the region before it stores anything. Errors name places in the body of a PUT.
package declare

import (
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Plain is what the body of a PUT of a plain kind says.
type Plain struct {
	Project string
	Service string
	Labels  map[string]string
	Spec    any
}

// Site makes the spec of a site.
func Site(put api.SitePut) (fleet.SiteSpec, error) {
	spec := fleet.SiteSpec{Nodes: []fleet.SiteNode{}, OnIsolation: put.OnIsolation, AutoFailback: put.AutoFailback}
	for _, n := range put.Nodes {
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: fleet.NodeName(n.Name), Role: n.Role})
	}
	return spec, spec.Validate()
}

// Pool makes the spec of a pool.
func Pool(put api.PoolPut) (fleet.PoolSpec, error) {
	spec := fleet.PoolSpec{Sites: put.Sites, Nodes: put.Nodes, Labels: put.NodeLabels, MaxReplicas: put.MaxReplicas}
	return spec, ofPool(spec.Validate())
}

// ofPool turns a place in a spec into one in the body of its PUT, where labels are the object's.
func ofPool(err error) error {
	var e *fleet.Error
	if errors.As(err, &e) && (e.Field == "/labels" || strings.HasPrefix(e.Field, "/labels/")) {
		return e.At("/nodeLabels" + strings.TrimPrefix(e.Field, "/labels"))
	}
	return err
}

// Template makes the spec of the template of a name, without the name of its base.
func Template(name string, put api.TemplatePut, base []byte) (fleet.TemplateSpec, error) {
	spec := fleet.TemplateSpec{Secrets: put.Secrets}
	for _, pin := range put.Compositions {
		spec.Compositions = append(spec.Compositions, fleet.TemplatePin{Name: fleet.TemplateName(pin)})
	}
	if base == nil {
		return spec, fleet.Errorf(fleet.Invalid, "base is required").At("/base")
	}
	return spec, spec.Validate(fleet.TemplateName(name))
}

// CheckTemplate refuses what is wrong in a template, its base in it.
func CheckTemplate(name string, put api.TemplatePut) error {
	_, err := Template(name, put, document(put.Base))
	return err
}

// PlainSite is what the body of a site says.
func PlainSite(put api.SitePut) (Plain, error) {
	spec, err := Site(put)
	return Plain{put.Project, put.Service, put.Labels, spec}, err
}

// PlainPool is what the body of a pool says.
func PlainPool(put api.PoolPut) (Plain, error) {
	spec, err := Pool(put)
	return Plain{put.Project, put.Service, put.Labels, spec}, err
}

// Project makes the spec of the project of a name.
func Project(name string, put api.ProjectPut) (fleet.ProjectSpec, error) {
	spec := fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: put.MultiRegionPolicy}, Organization: put.Organization}
	return spec, spec.Validate(fleet.ProjectName(name))
}

// Organization makes the spec of an organization.
func Organization(put api.OrganizationPut) (fleet.OrganizationSpec, error) {
	spec := fleet.OrganizationSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: put.MultiRegionPolicy}}
	return spec, spec.Validate()
}

// Service makes the spec of a service.
func Service(put api.ServicePut) (fleet.ServiceSpec, error) {
	spec := fleet.ServiceSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: put.MultiRegionPolicy}}
	return spec, spec.Validate()
}

// PlainOrganization is what the body of an organization says; all projects may see it.
func PlainOrganization(put api.OrganizationPut) (Plain, error) {
	spec, err := Organization(put)
	return Plain{string(fleet.DefaultProject), "", put.Labels, spec}, err
}

// PlainService is what the body of a service says.
func PlainService(put api.ServicePut) (Plain, error) {
	spec, err := Service(put)
	return Plain{put.Project, "", put.Labels, spec}, err
}
