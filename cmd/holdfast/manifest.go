package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// manifest is one declared object of a file; Spec is the body of its PUT.
type manifest struct {
	Kind    string            `json:"kind"`
	Name    string            `json:"name"`
	Site    string            `json:"site"`
	Project string            `json:"project"`
	Labels  map[string]string `json:"labels"`
	Spec    json.RawMessage   `json:"spec"`

	at  string // file:line
	dir string // that file names in the spec are relative to

	// One of these is what Spec was read as.
	site     api.SitePut
	template api.TemplatePut
	instance instanceManifest
}

// instanceManifest adds to an instance's spec what only a command line can read.
type instanceManifest struct {
	api.InstancePut
	ArtifactFile string `json:"artifactFile,omitempty"`
	ConfigFile   string `json:"configFile,omitempty"`
}

func (m *manifest) key() fleet.ObjectKey {
	key := fleet.ObjectKey{Kind: fleet.ObjectKind(strings.ToLower(m.Kind)), Name: m.Name}
	if key.Kind == fleet.KindInstance {
		key.Scope = m.Site
	}
	return key
}

// document is a piece of a file, as JSON, and where it begins.
type document struct {
	at   string
	dir  string
	data json.RawMessage
}

// readDocuments reads a file, all manifest files of a directory in order of their names,
// or stdin when it is "-".
func readDocuments(name string, stdin io.Reader) ([]document, error) {
	if name == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		return splitDocuments("stdin", ".", data)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, &usageError{err}
	}
	files := []string{name}
	if info.IsDir() {
		if files, err = manifestFiles(name); err != nil {
			return nil, err
		}
	}
	var all []document
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // the person who runs this names the file
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		documents, err := splitDocuments(file, filepath.Dir(file), data)
		all, errs = append(all, documents...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func manifestFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var files []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
			if !e.IsDir() {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	if len(files) == 0 {
		return nil, &usageError{fmt.Errorf("%s holds no .yaml, .yml or .json file", dir)}
	}
	return files, nil
}

// splitDocuments takes text that begins like JSON for JSON, whose numbers and doubled keys
// then reach the region as they are.
func splitDocuments(file, dir string, data []byte) ([]document, error) {
	begin := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), " \t\r\n")
	if ext := filepath.Ext(file); ext == ".json" || (ext != ".yaml" && ext != ".yml" && bytes.HasPrefix(begin, []byte("{"))) {
		return splitJSON(file, dir, data)
	}
	return splitYAML(file, dir, data)
}

func splitJSON(file, dir string, data []byte) ([]document, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var all []document
	for {
		begin := decoder.InputOffset()
		for begin < int64(len(data)) && strings.ContainsRune(" \t\r\n", rune(data[begin])) {
			begin++
		}
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				begin = syntax.Offset
			}
			return all, fmt.Errorf("%s: not JSON: %w", place(file, data, begin), err)
		}
		all = append(all, document{at: place(file, data, begin), dir: dir, data: value})
	}
}

// place names a line of a file.
func place(file string, data []byte, offset int64) string {
	line := 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
	return fmt.Sprintf("%s:%d", file, line)
}
