package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// maxImage bounds an engine's description of an image. The image's labels and environment are in every description
// of its containers: an answer that is too long to read would be about a container that cannot be stopped.
const maxImage = 256 << 10

// pull makes sure that an image is present; it does not pull a present one again.
func (e *engine) pull(ctx context.Context, image string) error {
	err := e.described(ctx, image)
	if !absent(err) {
		return err
	}
	if err := e.fetch(ctx, image); err != nil {
		return err
	}
	return e.described(ctx, image)
}

// described returns an error for an image that is absent, or whose description is too long.
func (e *engine) described(ctx context.Context, image string) error {
	ctx, cancel := limited(ctx, e.limit)
	defer cancel()
	body, err := e.open(ctx, request{method: http.MethodGet, path: "/images/" + named(image) + "/json"})
	if err != nil {
		return err
	}
	defer body.Close()
	size, err := io.Copy(io.Discard, io.LimitReader(body, maxImage+1))
	switch {
	case err != nil:
		return fleet.Errorf(fleet.Unavailable, "read the engine's answer: %w", err)
	case size > maxImage:
		return fleet.Errorf(fleet.Invalid, "labels, environment and commands of the image have more than %d bytes", maxImage)
	}
	return nil
}

// named is an image by its name: without a tag or digest an engine also takes the first digits of an image's id.
func named(image string) string {
	if name, tag := reference(image); !strings.Contains(image, "@") {
		return name + ":" + tag
	}
	return image
}

// fetch pulls an image.
func (e *engine) fetch(ctx context.Context, image string) error {
	name, tag := reference(image)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(pullSilence, func() {
		cancel(fleet.Errorf(fleet.Unavailable, "pull the image: no progress for %s", pullSilence))
	})
	defer silent.Stop()
	body, err := e.open(ctx, request{method: http.MethodPost, path: "/images/create", query: url.Values{"fromImage": {name}, "tag": {tag}}})
	if err != nil {
		return noImage(err)
	}
	defer body.Close()
	return progress(body, func() { silent.Reset(pullSilence) })
}

// pullSilence is how long an engine may report no progress of a pull.
const pullSilence = 5 * time.Minute

// progress reads a pull to its end: the engine answers 200 first, and reports a failure later.
func progress(body io.Reader, moved func()) error {
	lines := json.NewDecoder(body)
	for {
		var line struct {
			Error       string `json:"error"`
			ErrorDetail struct {
				Code int `json:"code"`
			} `json:"errorDetail"`
		}
		err := lines.Decode(&line)
		moved()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fleet.Errorf(fleet.Unavailable, "pull the image: %w", err)
		case line.ErrorDetail.Code == http.StatusNotFound:
			return noImage(fleet.Errorf(fleet.NotFound, "%.300s", line.Error))
		case line.Error != "":
			return fleet.Errorf(fleet.Unavailable, "pull the image: %.300s", line.Error)
		}
	}
}

func noImage(err error) error {
	if absent(err) {
		return &replicas.Failure{Reason: fleet.ReasonNoImage, Err: err}
	}
	return err
}

// reference splits an image's name from its tag or digest. A colon before the last slash belongs to the port of
// a registry.
func reference(image string) (name, tag string) {
	if name, digest, ok := strings.Cut(image, "@"); ok {
		return name, digest
	}
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[:at], image[at+1:]
	}
	return image, "latest"
}
