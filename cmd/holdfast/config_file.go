package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/documents"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The one remedy that changes nothing for the program that reads the file.
const asArtifact = "use artifactFile to deliver the file byte for byte"

// checkConfig refuses a config that the region would refuse, and names the place in the file. Sizes are the region's to
// judge.
func checkConfig(name string, data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%s is empty, and JSON needs a value, for example {}; %s", name, asArtifact)
	}
	_, err := compose.Canonical(data, compose.Limits{MaxBytes: math.MaxUint32, MaxValues: math.MaxInt32})
	var refused *fleet.Error
	if !errors.As(err, &refused) {
		return err
	}
	at := name
	if offset, ok := compose.OffsetOf(err); ok {
		line, column := documents.Position(data, offset)
		at = fmt.Sprintf("%s:%d:%d", name, line, column)
	}
	if refused.Field != "" {
		at += ": " + refused.Field
	}
	return fmt.Errorf("%s: %s; %s", at, refused.Message, asArtifact)
}
