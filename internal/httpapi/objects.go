package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
)

// NameParam names an object.
type NameParam struct {
	Name string `path:"name"`
}

func (p NameParam) keyOf(kind fleet.ObjectKind) (fleet.ObjectKey, error) {
	return fleet.ObjectKey{Kind: kind, Name: p.Name}, fleet.ValidateName("name", p.Name)
}

type getInput struct{ NameParam }

type listInput struct{ ListParams }

// RegionParam names the region that created an object.
type RegionParam struct {
	Region string `query:"region" maxLength:"63" format:"name" doc:"the region that created it: of another one, the copy that is here"`
}

type getObjectInput struct {
	NameParam
	RegionParam
	serve.InProject
}

type listObjectsInput struct {
	ListParams
	RegionParam
}

type changeInput struct {
	NameParam
	MutationParams
}

type changeObjectInput struct {
	NameParam
	ObjectParams
	serve.InProject
}

type objectOutput struct {
	ETag string `header:"ETag"`
	Body api.Object
}

type objectsOutput struct{ Body api.List[api.Object] }

type acceptedOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     api.Accepted
}

// statusOf assembles the statuses of a page of objects; nil where a kind has none.
type statusOf func(ctx context.Context, of []fleet.Object) ([]any, error)

// mountObjects mounts the paths of all kinds.
func (s *server) mountObjects() {
	for _, k := range s.declared {
		part := s.kinds[k.Kind]
		if !part.own {
			s.mountKind(k, part)
		}
		if part.mount != nil {
			part.mount(s, k)
		}
	}
}

func (s *server) mountKind(k fleet.DeclaredKind, part kindPart) {
	path := "/api/v1/" + k.Plural
	list, one := s.statuses(part.status), s.statuses(part.detail)
	if one == nil {
		one = list
	}
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, path, "list-"+k.Plural, "List "+k.Plural),
		func(ctx context.Context, in *listObjectsInput) (*objectsOutput, error) {
			return s.listObjects(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: fleet.ObjectKey{Kind: k.Kind}}, in.ListParams, list)
		})
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, path+"/{name}", "get-"+string(k.Kind), "Read a "+string(k.Kind)),
		func(ctx context.Context, in *getObjectInput) (*objectOutput, error) {
			return s.getObject(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: fleet.ObjectKey{Kind: k.Kind, Name: in.Name}}, one)
		})
	serve.Register(s.Server, s.plans.Kinds[k.Kind].Writers, serve.Endpoint(http.MethodDelete, path+"/{name}", "delete-"+string(k.Kind), "Delete a "+string(k.Kind)),
		func(ctx context.Context, in *changeObjectInput) (*acceptedOutput, error) {
			return s.deleteDeclared(ctx, fleet.ObjectKey{Kind: k.Kind, Name: in.Name}, in.ObjectParams)
		})
}

func (s *server) statuses(of func(*server, context.Context, []fleet.Object) ([]any, error)) statusOf {
	if of == nil {
		return nil
	}
	return func(ctx context.Context, objects []fleet.Object) ([]any, error) { return of(s, ctx, objects) }
}

// visible reads an object that the caller may see; any other does not exist for it.
func (s *server) visible(ctx context.Context, key fleet.ObjectKey) (fleet.Object, error) {
	if err := fleet.ValidateName("name", key.Name); err != nil {
		return fleet.Object{}, err
	}
	o, err := s.store.GetObject(ctx, key)
	if err == nil && !serve.CallOf(ctx).Sees(o.Project) {
		return fleet.Object{}, fleet.NoObject(key)
	}
	return o, err
}

// named finds what a name means: an object of this region, or the copy of one that another region created. The name of a
// shared kind without a region also means the only copy.
func (s *server) named(ctx context.Context, key fleet.CopyKey) (fleet.Object, error) {
	if key.Region == "" || key.Region == s.region {
		o, err := s.visible(ctx, key.ObjectKey)
		if key.Region != "" || fleet.KindOf(err) != fleet.NotFound || !key.Kind.Declared().Shared {
			return o, err
		}
	}
	o, err := s.store.GetCopy(ctx, key)
	if err == nil && !serve.CallOf(ctx).Sees(o.Project) {
		return fleet.Object{}, fleet.NoObject(key.ObjectKey)
	}
	return o, err
}

func (s *server) getObject(ctx context.Context, key fleet.CopyKey, status statusOf) (*objectOutput, error) {
	o, err := s.named(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Region != "" { // what it is at lies with its owner
		status = s.copyStatuses
	}
	views, err := shownWith(ctx, []fleet.Object{o}, status)
	if err != nil {
		return nil, err
	}
	return &objectOutput{ETag: etagOf(&o), Body: views[0]}, nil
}

func (s *server) listObjects(ctx context.Context, of fleet.CopyKey, in ListParams, status statusOf) (*objectsOutput, error) {
	project, err := listProject(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	var objects []fleet.Object
	if of.Region == "" || of.Region == s.region {
		objects, err = s.store.ListObjects(ctx, of.Kind, of.Scope, project, after, in.Limit+1)
	} else {
		status = s.copyStatuses
		objects, err = s.store.ListCopies(ctx, of, project, after, in.Limit+1)
		if err == nil && len(objects) == 0 && after == "" {
			err = s.knownRegion(ctx, of.Region)
		}
	}
	if err != nil {
		return nil, err
	}
	cut := page(objects, in.Limit, func(o fleet.Object) string { return o.Name })
	views, err := shownWith(ctx, cut.Items, status)
	return &objectsOutput{Body: api.List[api.Object]{Items: views, Next: cut.Next}}, err
}

// knownRegion rejects a region that is no member: an empty list of its copies would read as if it had none.
func (s *server) knownRegion(ctx context.Context, name fleet.RegionName) error {
	members, err := s.store.Members(ctx)
	if err != nil || slices.ContainsFunc(members, func(m peers.Member) bool { return m.Name == name }) {
		return err
	}
	return s.store.Elsewhere(ctx, fleet.CopyKey{Region: name})
}

func (s *server) deleteDeclared(ctx context.Context, key fleet.ObjectKey, m ObjectParams) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", key.Name); err != nil {
		return nil, err
	}
	w, err := s.write(ctx, key, m, nil)
	if err != nil {
		return nil, err
	}
	// A repeat of a request that succeeded finds no object, and is the store's to answer.
	if w.Project != "" {
		if err := s.here(ctx, w); err != nil {
			return nil, err
		}
	}
	written, err := s.store.DeleteDeclared(ctx, w)
	if err != nil {
		return nil, err
	}
	return declared(written, m.MutationParams), nil
}

// declared answers a change that started no work.
func declared(w postgres.Written, m MutationParams) *acceptedOutput {
	out := &acceptedOutput{Status: http.StatusOK, ETag: etagOf(w.After), Body: api.Accepted{DryRun: m.DryRun}}
	if w.After != nil {
		view := ViewOf(*w.After)
		out.Body.Object = &view
	}
	return out
}

// ViewOf is a whole object, without its status, as peers get it.
func ViewOf(o fleet.Object) api.Object {
	view := api.Object{
		Kind: string(o.Kind), Region: string(o.Region), Name: o.Name, Project: string(o.Project),
		Service: o.Service, Labels: o.Labels, UID: o.UID,
		Generation: o.Generation, ResourceVersion: strconv.FormatInt(o.ResourceVersion, 10), Syncing: o.Syncing,
		CreatedBy: o.CreatedBy, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, DeletingSince: o.DeletingSince, Spec: o.Spec,
	}
	if o.Kind == fleet.KindInstance {
		view.Site = o.Scope
	}
	return view
}

// shownWith is how objects read for the caller, with their statuses.
func shownWith(ctx context.Context, objects []fleet.Object, status statusOf) ([]api.Object, error) {
	views := make([]api.Object, len(objects))
	for i, o := range objects {
		views[i] = shown(ctx, o)
	}
	if status == nil || len(objects) == 0 {
		return views, nil
	}
	all, err := status(ctx, objects)
	if err != nil {
		return nil, err
	}
	for i, v := range all {
		if views[i].Status, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return views, nil
}
