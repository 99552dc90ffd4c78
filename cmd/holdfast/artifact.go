package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

func (c *cli) newArtifactCommand() *cobra.Command {
	return newGroup("artifact", "Upload artifacts for instances", c.newArtifactUploadCommand())
}

var artifactHeader = []string{"SHA256", "SIZE"}

func artifactItem(a api.Artifact) item {
	return item{name: "artifact/" + string(a.SHA256), value: a, cells: []string{string(a.SHA256), bytesText(a.Size)}}
}

func (c *cli) newArtifactUploadCommand() *cobra.Command {
	var upload string
	cmd := &cobra.Command{
		Use: "upload FILE", Short: "Upload a file of any size; a broken connection is resumed", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&upload, "upload", "", "resume this upload of an earlier attempt")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.connect()
		if err != nil {
			return err
		}
		a, err := c.uploadFile(cmd.Context(), client, args[0], api.Upload{ID: upload, Project: c.flags.project})
		if err != nil {
			return err
		}
		return c.print(single(artifactHeader, artifactItem(a)))
	}
	return cmd
}

// uploadFile sends a file and shows its progress on stderr.
func (c *cli) uploadFile(ctx context.Context, client *api.Client, path string, in api.Upload) (api.Artifact, error) {
	f, err := os.Open(path) //nolint:gosec // the person who runs this names the file
	if err != nil {
		return api.Artifact{}, &usageError{err}
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &usageError{errors.New(path + " is not a regular file, so an upload could not be resumed")}
	}
	if err != nil {
		return api.Artifact{}, err
	}
	in.Body, in.Size = f, info.Size()
	in.Progress = c.uploadProgress(path)
	a, err := client.UploadArtifact(ctx, in)
	if err != nil {
		return a, fmt.Errorf("upload %s: %w", path, err)
	}
	return a, nil
}

// uploadProgress rewrites one line on a terminal; elsewhere it prints a line per tenth.
func (c *cli) uploadProgress(path string) func(sent, total int64) {
	width, printed := c.width(c.stderr), int64(-1)
	return func(sent, total int64) {
		line := fmt.Sprintf("%s: %s of %s", clean(path), bytesText(sent), bytesText(total))
		step := int64(10)
		if total > 0 {
			step = sent * 10 / total
		}
		switch {
		case c.flags.output != formatTable:
		case width > 0:
			text := []rune(line)
			fmt.Fprintf(c.stderr, "\r\x1b[K%s", string(text[:min(len(text), width-1)]))
			if sent >= total {
				fmt.Fprintln(c.stderr)
			}
		case step != printed:
			printed = step
			fmt.Fprintln(c.stderr, line)
		}
	}
}
