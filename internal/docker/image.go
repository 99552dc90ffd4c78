package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// pull has an image there; one that is there already is not asked for again.
func (e *engine) pull(ctx context.Context, image string) error {
	err := e.call(ctx, request{method: http.MethodGet, path: "/images/" + image + "/json"}, nil)
	if !absent(err) {
		return err
	}
	name, tag := reference(image)
	body, err := e.open(ctx, request{method: http.MethodPost, path: "/images/create", query: url.Values{"fromImage": {name}, "tag": {tag}}})
	if err != nil {
		return noImage(err)
	}
	defer body.Close()
	return progress(body)
}

// progress reads a pull to its end: the engine answers 200 first, and says later that it failed.
func progress(body io.Reader) error {
	lines := json.NewDecoder(body)
	for {
		var line struct {
			Error       string `json:"error"`
			ErrorDetail struct {
				Code int `json:"code"`
			} `json:"errorDetail"`
		}
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fleet.Errorf(fleet.Communication, "pull the image: %w", err)
		case line.ErrorDetail.Code == http.StatusNotFound:
			return noImage(fleet.Errorf(fleet.NotFound, "%.300s", line.Error))
		case line.Error != "":
			return fleet.Errorf(fleet.Communication, "pull the image: %.300s", line.Error)
		}
	}
}

func noImage(err error) error {
	if absent(err) {
		return &replicas.Failure{Reason: fleet.ReasonNoImage, Err: err}
	}
	return err
}

// reference splits an image's name from its tag or digest. A colon before the last slash is that of
// a registry's port.
func reference(image string) (name, tag string) {
	if name, digest, ok := strings.Cut(image, "@"); ok {
		return name, digest
	}
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[:at], image[at+1:]
	}
	return image, "latest"
}
