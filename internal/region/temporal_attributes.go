package region

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// attributes are the search attributes of workflows, each a Keyword.
func attributes() []string {
	return []string{
		workflows.AttributeSite, workflows.AttributeNode, workflows.AttributeInstance, workflows.AttributeDeployment,
		workflows.AttributeRegion, workflows.AttributePhase, workflows.AttributeOutcome,
	}
}

// addAttributes registers search attributes. An account that may only use a namespace, as at Temporal Cloud, may
// not register any: then they must already exist.
func addAttributes(ctx context.Context, c client.Client, namespace string) error {
	all := map[string]enumspb.IndexedValueType{}
	for _, name := range attributes() {
		all[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{SearchAttributes: all, Namespace: namespace})
	if err == nil || errors.As(err, new(*serviceerror.AlreadyExists)) {
		return nil
	}
	missing, asked := missingAttributes(ctx, c, namespace)
	switch {
	case asked != nil: // the namespace may not be used, or does not answer
		return asked
	case len(missing) == 0:
		return nil
	case errors.As(err, new(*serviceerror.PermissionDenied)) || errors.As(err, new(*serviceerror.Unimplemented)):
		names := strings.Join(missing, ", ")
		return fleet.Errorf(fleet.Precondition, "the Temporal namespace %s lacks the search attributes %s, and this server may not register them: %w", namespace, names, err).
			WithHint("have an administrator register them as Keyword: temporal operator search-attribute create, or at Temporal Cloud tcld namespace search-attributes add")
	}
	return fmt.Errorf("register search attributes: %w", err)
}

// missingAttributes counts workflows by each attribute: Temporal rejects a query by an unknown one.
func missingAttributes(ctx context.Context, c client.Client, namespace string) (missing []string, err error) {
	for _, name := range attributes() {
		_, err := c.WorkflowService().CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: namespace, Query: name + ` = "none"`,
		})
		if errors.As(err, new(*serviceerror.InvalidArgument)) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, fmt.Errorf("look for the search attribute %s: %w", name, err)
		}
	}
	return missing, nil
}
