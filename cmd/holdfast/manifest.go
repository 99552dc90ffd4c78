package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/documents"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// manifest is one declared object of a file; Spec is the body of its PUT.
type manifest struct {
	Kind    string            `json:"kind"`
	Name    string            `json:"name"`
	Site    string            `json:"site"`
	Project string            `json:"project"`
	Region  string            `json:"region"`
	Service string            `json:"service"`
	Labels  map[string]string `json:"labels"`
	Spec    json.RawMessage   `json:"spec"`

	kind declaredKind // without a title if it is unknown

	at  string // file:line
	dir string // directory that file names in the spec are relative to

	// Spec was decoded into one of these. It has the region's format: the contents of files that were named.
	template api.TemplatePut
	instance instanceManifest
	deployed deploymentManifest
	// artifactSize is the size of the file named in artifactFile.
	artifactSize int64
}

// instanceManifest is an instance's spec with the fields that only the command line reads.
type instanceManifest struct {
	api.InstancePut
	ArtifactFile string `json:"artifactFile,omitempty"`
	ConfigFile   string `json:"configFile,omitempty"`
}

// deploymentManifest is a deployment's spec with the fields that only the command line reads.
type deploymentManifest struct {
	api.DeploymentPut
	Files []deploymentFile `json:"files,omitempty"`
}

type deploymentFile struct {
	api.DeploymentFile
	ContentFile string `json:"contentFile,omitempty"`
}

func (m *manifest) key() fleet.ObjectKey {
	return m.kind.NewKey(m.Site, m.Name)
}

// named is the name of the object among those of all regions.
func (m *manifest) named() fleet.CopyKey {
	return fleet.CopyKey{Region: fleet.RegionName(m.Region), ObjectKey: m.key()}
}

// templateName is a template that the manifest names: a plain name is one of its region.
func (m *manifest) templateName(name string) string {
	if m.Region == "" || strings.Contains(name, "/") {
		return name
	}
	return m.Region + "/" + name
}

// readDocuments reads a file, all manifest files of a directory ordered by name, or stdin if it is "-".
func readDocuments(name string, stdin io.Reader) ([]documents.Document, error) {
	if name == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		return documents.Split("stdin", ".", data)
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
	found, errs := make([][]documents.Document, len(files)), make([]error, len(files))
	onAllCores(len(files), func(i int) {
		data, err := os.ReadFile(files[i])
		if err != nil {
			errs[i] = fmt.Errorf("read manifest: %w", err)
			return
		}
		found[i], errs[i] = documents.Split(files[i], filepath.Dir(files[i]), data)
	})
	return slices.Concat(found...), errors.Join(errs...)
}

// onAllCores does n independent things.
func onAllCores(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	const share = 32
	for from := 0; from < n; from += share {
		group.Go(func() error {
			for i := from; i < min(from+share, n); i++ {
				do(i)
			}
			return nil
		})
	}
	_ = group.Wait() // none returns an error
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
		return nil, &usageError{fmt.Errorf("%s contains no .yaml, .yml or .json file", dir)}
	}
	return files, nil
}
