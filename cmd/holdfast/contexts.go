package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// contexts is the context file: regions by name, and the current one.
type contexts struct {
	Current  string                  `json:"current,omitempty"`
	Contexts map[string]savedContext `json:"contexts"`
}

// savedContext is how to reach one region.
type savedContext struct {
	Address string `json:"address"`
	Token   string `json:"token,omitempty"`
	Project string `json:"project,omitempty"`
	// Region is the name of the region; "" if it is to be asked.
	Region string `json:"region,omitempty"`
	// TLS files, with absolute paths.
	CA         string `json:"ca,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
}

func (s savedContext) certs() certs.ClientFiles {
	return certs.ClientFiles{CA: s.CA, Pair: certs.Pair{Cert: s.ClientCert, Key: s.ClientKey}}
}

// keep replaces the files that are given, and keeps the others.
func (s *savedContext) keep(files certs.ClientFiles) error {
	if files.Cert != "" || files.Key != "" {
		s.ClientCert, s.ClientKey = files.Cert, files.Key
	}
	s.CA = first(files.CA, s.CA)
	for _, path := range []*string{&s.CA, &s.ClientCert, &s.ClientKey} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("locate %s: %w", *path, err)
		}
		*path = whole
	}
	return nil
}

// loadContexts reads the context file; a missing file is empty.
func (c *cli) loadContexts() (contexts, error) {
	file := contexts{Contexts: map[string]savedContext{}}
	path := c.contextsPath()
	data, err := os.ReadFile(path) //nolint:gosec // the person who runs this names the file
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err != nil {
		return file, fmt.Errorf("read contexts: %w", err)
	}
	if info, err := os.Stat(path); err == nil {
		c.warnOpen(path, info)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return file, fleet.Errorf(fleet.Invalid, "invalid context file %s: %w", path, err).
			WithHint("repair or remove it; holdfast context set writes a new one")
	}
	if file.Contexts == nil {
		file.Contexts = map[string]savedContext{}
	}
	return file, nil
}

// saveContexts replaces the file atomically, readable only by its owner.
func (c *cli) saveContexts(file contexts) error {
	path := c.contextsPath()
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return fmt.Errorf("encode contexts: %w", err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save contexts: %w", err)
	}
	if err := durable.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("save contexts: %w", err)
	}
	return nil
}
