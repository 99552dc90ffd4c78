// Package api is the HTTP contract of a region: what is sent and answered, and the client that the CLI and everybody
// else uses. It needs the standard library only, so that any module can import it.
//
//	c, err := api.NewClient("http://127.0.0.1:7370", token)
//	_, err = c.PutInstance(ctx, "plant-1", "press", api.InstancePut{Config: config}, api.Mutation{})
//
// An error is an *Error with a Kind, a place in the request, and a hint. See nouns.go for the nouns that it shares
// with the rest of Holdfast.
package api
