package httpapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
)

// memorySchema, replicasSchema and shareSchema show both forms of what the contract reads in two.
type (
	memorySchema   struct{}
	replicasSchema struct{}
	shareSchema    struct{}
)

// Schema shows both forms.
func (memorySchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: `bytes, or a text such as "512Mi"`,
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString, Pattern: `^[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)?$`}},
	}
}

// Schema shows both forms.
func (replicasSchema) Schema(huma.Registry) *huma.Schema {
	count := &huma.Schema{Type: huma.TypeInteger}
	return &huma.Schema{
		Description: "bounds of the target count; one number is exactly so many",
		OneOf: []*huma.Schema{count, {
			Type: huma.TypeObject, Properties: map[string]*huma.Schema{"min": count, "max": count, "initial": count},
		}},
	}
}

// Schema shows both forms.
func (shareSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: `a number of replicas, or a part of the target such as "25%"`,
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString, Pattern: `^[0-9]+%?$`}},
	}
}

func newSchemas() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	r.RegisterTypeAlias(reflect.TypeFor[api.Memory](), reflect.TypeFor[memorySchema]())
	r.RegisterTypeAlias(reflect.TypeFor[api.ReplicaCounts](), reflect.TypeFor[replicasSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[api.Share](), reflect.TypeFor[shareSchema]())
	return r
}
