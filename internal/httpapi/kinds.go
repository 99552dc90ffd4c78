package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// kindPart is what the API does for one kind of declared objects. A plain kind needs only writers and read: its spec
// is made from the body of a PUT alone, compared, written and removed without a look at other objects.
type kindPart struct {
	// mount mounts the paths of the kind, beside those that mountKind makes for each kind that is not of a site.
	Mount func(s *server, k fleet.DeclaredKind)
	// status makes the statuses of a page of objects; nil shows none. detail is for one object, where that says more.
	status, detail func(s *server, ctx context.Context, of []fleet.Object) ([]any, error)
	// writers may declare and delete the objects of the kind.
	writers serve.Access
	// read takes the spec of a manifest in, as far as it can be checked without the region's other objects.
	read func(p *planned, spec []byte) error
	// decide completes the spec by other objects and plans what an apply does; nil plans planned.plain.
	decide func(p *planner, ctx context.Context, o *planned) error
	// write and remove carry out what was planned; nil declares planned.plain, and deletes what is unused.
	write  func(a *applying, ctx context.Context, o *planned, w postgres.Write) (*acceptedOutput, error)
	remove func(a *applying, ctx context.Context, w postgres.Write) (*acceptedOutput, error)
	// unreferred: no object refers to one of the kind, so an apply writes many at the same time.
	unreferred bool
}

// kindParts has a row for each kind of fleet.DeclaredKinds.
func kindParts() map[fleet.ObjectKind]kindPart {
	return map[fleet.ObjectKind]kindPart{
		fleet.KindProject: {writers: serve.ForAdmins, Mount: (*server).mountProjects, read: (*planned).readProject},
		fleet.KindSite: {
			writers: serve.ForAdmins, Mount: mountPlain("Declare a site and its nodes", siteOf), status: (*server).siteStatuses,
			read: readPlain(siteOf), decide: (*planner).decideSite,
		},
		fleet.KindPool: {writers: serve.ForAdmins, Mount: mountPlain("Declare a pool of nodes", poolOf), read: readPlain(poolOf)},
		fleet.KindTemplate: {
			writers: serve.ForOperators, Mount: (*server).mountTemplates, read: (*planned).readTemplate, decide: (*planner).decideTemplate,
			write: (*applying).putTemplateOf,
		},
		fleet.KindInstance: {
			writers: serve.ForOperators, Mount: (*server).mountInstances, read: (*planned).readInstance, decide: (*planner).decideInstance,
			write: (*applying).putInstanceOf, remove: (*applying).removeInstance, unreferred: true,
		},
		fleet.KindDeployment: {
			writers: serve.ForOperators, Mount: (*server).mountDeployments, read: (*planned).readDeployment, decide: (*planner).decideDeployment,
			write: (*applying).putDeploymentOf, remove: (*applying).removeDeployment, unreferred: true,
		},
		fleet.KindFleet: {
			writers: serve.ForOperators, Mount: (*server).mountFleets, status: (*server).fleetStatuses, detail: (*server).fleetDetail,
			read: (*planned).readFleet, decide: (*planner).decideFleet, write: (*applying).putFleetOf,
		},
	}
}

// declaration is what the body of a PUT of a plain kind says.
type declaration struct {
	project string
	labels  map[string]string
	spec    any
}

// declarer makes the checked declaration of a body. Its errors name places in the body.
type declarer[P any] func(P) (declaration, error)

func siteOf(put api.SitePut) (declaration, error) {
	spec, err := declare.Site(put)
	return declaration{put.Project, put.Labels, spec}, err
}

func poolOf(put api.PoolPut) (declaration, error) {
	spec, err := declare.Pool(put)
	return declaration{put.Project, put.Labels, spec}, err
}

// readPlain reads the spec of a manifest of a plain kind.
func readPlain[P any](of declarer[P]) func(*planned, []byte) error {
	return func(p *planned, spec []byte) error {
		var put P
		if err := serve.Decode(spec, &put); err != nil {
			return err
		}
		d, err := of(put)
		if beside := besideSpec(d.project, d.labels); beside != nil {
			return beside
		}
		p.plain = d.spec
		return err
	}
}

type putPlainInput struct {
	NameParam
	MutationParams
	CreateParams
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

// mountPlain mounts the PUT of a plain kind.
func mountPlain[P any](summary string, of declarer[P]) func(*server, fleet.DeclaredKind) {
	return func(s *server, k fleet.DeclaredKind) {
		op := serve.Endpoint(http.MethodPut, "/api/v1/"+k.Plural+"/{name}", "put-"+string(k.Kind), summary)
		serve.Register(s.Server, s.kinds[k.Kind].writers, op, func(ctx context.Context, in *putPlainInput) (*acceptedOutput, error) {
			return putPlain(ctx, s, k.Kind, in, of)
		})
		serve.Takes[P](s.Server, op)
	}
}

func putPlain[P any](
	ctx context.Context, s *server, kind fleet.ObjectKind, in *putPlainInput, of declarer[P],
) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	var put P
	raw, err := s.ReadJSON(ctx, &put)
	if err != nil {
		return nil, err
	}
	d, err := of(put)
	if err != nil {
		return nil, err
	}
	if err := fleet.ValidateLabels("/labels", d.labels); err != nil {
		return nil, err
	}
	w, err := s.write(ctx, fleet.ObjectKey{Kind: kind, Name: in.Name}, in.MutationParams, raw)
	if err != nil {
		return nil, err
	}
	if err := in.bind(&w); err != nil {
		return nil, err
	}
	if w.Project, err = s.projectOf(ctx, cmp.Or(d.project, in.Project)); err != nil {
		return nil, err
	}
	for _, r := range fleet.ReferencesOf(d.spec) {
		if err := s.usable(ctx, r); err != nil {
			return nil, err
		}
	}
	w.Labels = d.labels
	written, err := s.store.Declare(ctx, w, d.spec)
	if err != nil {
		return nil, err
	}
	return declared(written, in.MutationParams), nil
}
