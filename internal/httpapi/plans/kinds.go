package plans

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Kind is what plan and apply do for one kind of declared objects. A plain kind needs only writers and read: its
// spec is made from the body of a PUT alone, compared, written and removed without a look at other objects.
type Kind struct {
	// Writers may declare and delete the objects of the kind.
	Writers serve.Access
	// read takes the spec of a manifest in, as far as it can be checked without the region's other objects.
	read func(p *planned, spec []byte) error
	// decide completes the spec by other objects and plans what an apply does; nil plans planned.plain.
	decide func(p *planner, ctx context.Context, o *planned) error
	// write and remove carry out what was planned; nil declares planned.plain, and deletes what is unused.
	write  func(a *applying, ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error)
	remove func(a *applying, ctx context.Context, w postgres.Write) (*api.Accepted, error)
	// unreferred: no object refers to one of the kind, so an apply writes many at the same time.
	unreferred bool
}

// Kinds has a row for each kind of fleet.DeclaredKinds.
func Kinds() map[fleet.ObjectKind]Kind {
	site := Plain(serve.ForAdmins, declare.PlainSite)
	site.decide = (*planner).decideSite
	return map[fleet.ObjectKind]Kind{
		fleet.KindOrganization: Plain(serve.ForAdmins, declare.PlainOrganization),
		fleet.KindService:      Plain(serve.ForAdmins, declare.PlainService),
		fleet.KindProject:      {Writers: serve.ForAdmins, read: (*planned).readProject},
		fleet.KindSite:         site,
		fleet.KindPool:         Plain(serve.ForAdmins, declare.PlainPool),
		fleet.KindTemplate: {
			Writers: serve.ForOperators, read: (*planned).readTemplate, decide: (*planner).decideTemplate, write: (*applying).putTemplateOf,
		},
		fleet.KindInstance: {
			Writers: serve.ForOperators, read: (*planned).readInstance, decide: (*planner).decideInstance,
			write: (*applying).putInstanceOf, remove: (*applying).removeInstance, unreferred: true,
		},
		fleet.KindDeployment: {
			Writers: serve.ForOperators, read: (*planned).readDeployment, decide: (*planner).decideDeployment,
			write: (*applying).putDeploymentOf, remove: (*applying).removeDeployment, unreferred: true,
		},
		fleet.KindRegion: {Writers: serve.ForAdmins, read: (*planned).readRegion},
		fleet.KindFleet: {
			Writers: serve.ForOperators, read: (*planned).readFleet, decide: (*planner).decideFleet, write: (*applying).putFleetOf,
		},
	}
}

// Plain is a plain kind: of makes the checked declaration of a body, and its errors name places in the body.
func Plain[P any](writers serve.Access, of func(P) (declare.Plain, error)) Kind {
	return Kind{Writers: writers, read: func(p *planned, spec []byte) error {
		var put P
		if err := decode.Body(spec, &put); err != nil {
			return err
		}
		d, err := of(put)
		if p.key.Kind.Declared().NoProject {
			p.project, d.Project = fleet.ProjectName(d.Project), ""
		}
		if beside := besideSpec(d.Project, d.Service, d.Labels); beside != nil {
			return beside
		}
		p.plain = d.Spec
		return err
	}}
}
