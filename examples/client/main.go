// Command client puts a config on a site by the Go client of package api, and waits until the site has it.
// It is a module of its own: the client needs the standard library only.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

func main() {
	region := flag.String("region", "http://127.0.0.1:7370", "address of the region")
	site, name := flag.String("site", "plant-1", "site of the instance"), flag.String("name", "press-1", "name of the instance")
	config := flag.String("config", `{"speed":40}`, "config of the instance, JSON")
	flag.Parse()
	if err := run(context.Background(), *region, api.ObjectKey{Kind: api.KindInstance, Scope: *site, Name: *name}, *config); err != nil {
		problem := api.ProblemOf(err)
		fmt.Fprintln(os.Stderr, problem.Detail, problem.Hint)
		os.Exit(1)
	}
}

func run(ctx context.Context, region string, key api.ObjectKey, config string) error {
	client, err := api.NewClient(region, os.Getenv("HOLDFAST_TOKEN"))
	if err != nil {
		return err
	}
	accepted, err := client.PutInstance(ctx, key, api.InstancePut{Config: json.RawMessage(config)}, api.Mutation{})
	if err != nil {
		return err
	}
	if accepted.Operation == nil {
		fmt.Println(key.Name, "is unchanged")
		return nil
	}
	for o := *accepted.Operation; ; {
		if o.State != api.OperationRunning {
			fmt.Println(key.Name, o.State, o.Message)
			return nil
		}
		if o, err = client.Operation(ctx, o.ID, 30*time.Second); err != nil {
			return err
		}
	}
}
