package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// partOwner gives peers what the templates are composed of that they have, and nothing else.
type partOwner interface {
	SharedGeneration(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, pin fleet.TemplatePin) (json.RawMessage, error)
	SharedBody(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, h fleet.Hash) (*postgres.Body, error)
}

func partKeyOf(r *http.Request) fleet.CopyKey {
	return fleet.CopyKey{Region: fleet.RegionName(r.PathValue("region")), ObjectKey: fleet.TemplateKey(r.PathValue("name"))}
}

// GenerationAs sends a peer a generation that a template is composed of.
func (h *Handler) GenerationAs(peer fleet.RegionName, w http.ResponseWriter, r *http.Request) error {
	generation, err := strconv.ParseInt(r.URL.Query().Get("generation"), 10, 64)
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "invalid generation: want a number").At("generation")
	}
	pin := fleet.TemplatePin{Name: fleet.TemplateName(r.URL.Query().Get("template")), Generation: generation}
	raw, err := h.s.store.SharedGeneration(r.Context(), peer, partKeyOf(r), pin)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(h.s.Rolling(w, func(int) {}), r, "", time.Time{}, bytes.NewReader(raw))
	return nil
}

// BodyAs sends a peer a body of a template, or the range that it asks for.
func (h *Handler) BodyAs(peer fleet.RegionName, w http.ResponseWriter, r *http.Request) error {
	hash := fleet.Hash(r.PathValue("hash"))
	if err := fleet.ValidateHash("hash", hash); err != nil {
		return err
	}
	body, err := h.s.store.SharedBody(r.Context(), peer, partKeyOf(r), hash)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(h.s.Rolling(w, func(int) {}), r, "", time.Time{}, body)
	return nil
}
