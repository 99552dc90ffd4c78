package api

import (
	"context"
	"net/http"
)

// collection is the path of a kind's objects.
func collection(key ObjectKey) []string {
	row := key.Kind.Declared()
	if row.OfSite {
		return []string{KindSite.Declared().Plural, key.Scope, row.Plural}
	}
	return []string{row.Plural}
}

func objectPath(key ObjectKey, more ...string) []string {
	return append(append(collection(key), key.Name), more...)
}

// Object reads one declared object, with the ETag that a mutation can be bound to.
func (c *Client) Object(ctx context.Context, key ObjectKey) (Object, string, error) {
	return c.ObjectOf(ctx, key, Page{})
}

// ObjectOf reads one declared object of the project and of the creating region that a page names: one of another is not found.
func (c *Client) ObjectOf(ctx context.Context, key ObjectKey, p Page) (Object, string, error) {
	var o Object
	header, err := c.do(ctx, readCall(p.query(), objectPath(key)...), &o)
	return o, header.Get("ETag"), err
}

// Copy reads the copy of an object that another region created.
func (c *Client) Copy(ctx context.Context, region string, key ObjectKey) (Object, error) {
	o, _, err := c.ObjectOf(ctx, key, Page{Region: region})
	return o, err
}

// Objects lists the objects of a kind; scope is the site when the kind is instance.
func (c *Client) Objects(ctx context.Context, kind ObjectKind, scope string, p Page) (List[Object], error) {
	var l List[Object]
	_, err := c.do(ctx, readCall(p.query(), collection(ObjectKey{Kind: kind, Scope: scope})...), &l)
	return l, err
}

// Delete deletes an object; that of an instance or a deployment starts work.
func (c *Client) Delete(ctx context.Context, key ObjectKey, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodDelete, m, nil, objectPath(key)...))
}

// Put declares an object of any kind; body is what its kind's PUT takes. That of an instance, a deployment or a fleet
// change starts work.
func (c *Client) Put(ctx context.Context, key ObjectKey, body any, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodPut, m, body, objectPath(key)...))
}

// Stage declares an object like Put, and starts no work.
func (c *Client) Stage(ctx context.Context, key ObjectKey, body any, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodPut, m, body, objectPath(key)...).released(ReleaseNone))
}

// PutProject declares a project.
func (c *Client) PutProject(ctx context.Context, name string, project ProjectPut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindProject, Name: name}, project, m)
}

// PutSite declares a site.
func (c *Client) PutSite(ctx context.Context, name string, site SitePut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindSite, Name: name}, site, m)
}

// PutTemplate declares a template; no instance changes by it.
func (c *Client) PutTemplate(ctx context.Context, name string, template TemplatePut, m Mutation) (Accepted, error) {
	return c.Put(ctx, ObjectKey{Kind: KindTemplate, Name: name}, template, m)
}

// ApplyPolicy has the policy of an organization, a project or a service applied to all that it governs.
func (c *Client) ApplyPolicy(ctx context.Context, holder ObjectKey, m Mutation) (Accepted, error) {
	return c.Ask(ctx, holder, "apply-policy", nil, m)
}

// HandOver has another region control an organization, a project or a service.
func (c *Client) HandOver(ctx context.Context, holder ObjectKey, in HandOverRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, holder, "hand-over", in, m)
}

// Ask sends a verb of an object with the body that it takes, nil for none: POST /api/v1/PLURAL/NAME/VERB.
func (c *Client) Ask(ctx context.Context, key ObjectKey, verb string, in any, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodPost, m, in, objectPath(key, verb)...))
}

func (c *Client) accepted(ctx context.Context, r clientCall) (Accepted, error) {
	var a Accepted
	_, err := c.do(ctx, r, &a)
	return a, err
}
