package declare

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Fleet makes the spec of a fleet change, without the hash of its patch.
func Fleet(put api.FleetPut, patch []byte) (fleet.FleetSpec, error) {
	spec := fleet.FleetSpec{
		Change: fleet.FleetChange{
			Template: fleet.TemplateName(put.Change.Template), TemplateGeneration: put.Change.TemplateGeneration,
		},
		Selector: put.Selector, Waves: put.Waves, SuccessThreshold: put.SuccessThreshold, ErrorThreshold: put.ErrorThreshold,
		Windows: put.Windows, BatchSize: put.BatchSize, SitesAtOnce: put.SitesAtOnce, DeadlineSeconds: put.DeadlineSeconds,
		MinRunSeconds: put.MinRunSeconds,
	}.WithDefaults()
	if patch != nil {
		spec.Change.Patch = &fleet.Content{Kind: fleet.ContentJSON}
		if patch[0] != '{' {
			return spec, fleet.Errorf(fleet.Invalid, "invalid patch: must be an object").At("/change/patch").
				WithHint("a patch is merged over the overrides of each instance, or over its config")
		}
	}
	if err := CheckTexts(put.Labels, put.Reason); err != nil {
		return spec, err
	}
	if err := checkGeneration("/change/templateGeneration", put.Change.TemplateGeneration); err != nil {
		return spec, err
	}
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	return spec, checkZones(spec.Windows)
}

// CheckFleet refuses what is wrong in a fleet change, its patch in it.
func CheckFleet(put api.FleetPut) error {
	_, err := Fleet(put, document(put.Change.Patch))
	return err
}

// document is a part of a body as the region reads it: nil where there is none.
func document(raw json.RawMessage) []byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

// checkGeneration checks the generation of a template that something is pinned to.
func checkGeneration(field string, n int64) error {
	if n < 0 {
		return fleet.Errorf(fleet.Invalid, "invalid templateGeneration %d: want 1 or more, or omit it for the newest", n).At(field)
	}
	return nil
}

// checkZones looks windows' zones up where they are used: in the server's own database.
func checkZones(windows []fleet.Window) error {
	for i, w := range windows {
		if _, err := time.LoadLocation(w.Zone); err != nil || w.Zone == "Local" {
			return fleet.Errorf(fleet.Invalid, "unknown time zone %.64q", w.Zone).At("/windows/" + strconv.Itoa(i) + "/zone").
				WithHint("use a name of the IANA database, for example Europe/Berlin")
		}
	}
	return nil
}
