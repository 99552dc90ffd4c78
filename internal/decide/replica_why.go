package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// whyNot says what keeps a live replica from being routable, "" where nothing is known of that.
func whyNot(r fleet.ReplicaSeen) string {
	why := ""
	switch {
	case !r.Unheard.IsZero():
		why = "its node is not connected"
	case r.Failing != "":
		why = r.Failing
	case r.Phase == "":
		why = "its node has not reported it yet"
	case r.Phase == fleet.PhasePreStart:
		why = cmp.Or(r.Message, "its preStart commands have not ended")
	case r.Phase == fleet.PhasePreparing:
		why = cmp.Or(r.Message, "its definition is downloaded, or its image pulled")
	case r.Unready:
		why = "its readiness check does not pass"
	default:
		why = r.Message
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("replica %s on node %s: %s", r.ID, r.Node, why)
}

// whyNone says what keeps the first of several replicas from being routable that is not, "" where nothing is known of that.
func whyNone(all []fleet.ReplicaSeen) string {
	i := slices.IndexFunc(all, func(r fleet.ReplicaSeen) bool { return (!r.Routable() || !r.Unheard.IsZero()) && whyNot(r) != "" })
	if i < 0 {
		return ""
	}
	return whyNot(all[i])
}
