package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// Upload is what to send. The bytes are read twice: once for their hash, which the region
// has to confirm, and once to send them.
type Upload struct {
	Body    io.ReaderAt
	Size    int64
	Project string
	// ID resumes an earlier upload; "" starts one.
	ID string
	// Progress is called with the bytes that the region holds; nil if not needed.
	Progress func(sent, total int64)
}

const (
	// uploadPiece is one request: what a broken connection costs at most. The region takes
	// pieces that are a multiple of 1 MiB, the last one aside.
	uploadPiece = 8 << 20
	// OffsetField is the header with the offset of a piece, in bytes.
	OffsetField = "Upload-Offset"
)

// UploadArtifact sends bytes of any size in pieces and gives their name. A connection that
// breaks is resumed where the region stands. An error names the upload to resume.
func (c *Client) UploadArtifact(ctx context.Context, in Upload) (Artifact, error) {
	hash, n, err := HashOf(io.NewSectionReader(in.Body, 0, in.Size))
	if err == nil && n != in.Size {
		err = fleet.Errorf(Invalid, "the artifact has %d bytes instead of the announced %d", n, in.Size)
	}
	if err != nil {
		return Artifact{}, err
	}
	if in.Progress == nil {
		in.Progress = func(int64, int64) {}
	}
	a, err := c.beginUpload(ctx, in)
	if err != nil {
		return a, err
	}
	if a.SHA256 == "" {
		a, err = c.finishUpload(ctx, in, a, hash)
	}
	if err == nil && a.SHA256 != hash {
		err = fleet.Errorf(HashMismatch, "the region received %s instead of %s", a.SHA256, hash).
			WithHint("upload it again; the file may have changed during the upload")
	}
	return a, err
}

// HashOf gives the SHA-256 by which an artifact of these bytes is named.
func HashOf(body io.Reader) (Hash, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, body)
	if err != nil {
		return "", n, fmt.Errorf("read artifact: %w", err)
	}
	return Hash(hex.EncodeToString(h.Sum(nil))), n, nil
}

func (c *Client) beginUpload(ctx context.Context, in Upload) (Artifact, error) {
	if in.ID != "" {
		offset, err := c.uploadOffset(ctx, in.ID)
		return Artifact{Upload: in.ID, Offset: offset, Size: in.Size}, err
	}
	r := writeCall(http.MethodPost, Mutation{}, nil, "artifacts")
	r.query.Set("size", strconv.FormatInt(in.Size, 10))
	queryText(r.query, "project", in.Project)
	var a Artifact
	_, err := c.do(ctx, r, &a)
	return a, err
}

// finishUpload sends what is missing. Tries count from the last progress, so that a bad
// line finishes an upload of any size.
func (c *Client) finishUpload(ctx context.Context, in Upload, a Artifact, hash Hash) (Artifact, error) {
	offset, failures := a.Offset, 0
	for offset < in.Size {
		in.Progress(offset, in.Size)
		next, err := c.sendPiece(ctx, in, a.Upload, offset)
		if err != nil {
			failures++
			if next, err = c.recoverUpload(ctx, a.Upload, failures, err); err != nil {
				return a, resumable(err, a.Upload)
			}
		}
		if next > offset {
			failures = 0
		}
		offset = next
	}
	in.Progress(offset, in.Size)
	r := writeCall(http.MethodPost, Mutation{}, nil, "artifacts", "uploads", a.Upload, "complete")
	r.query.Set("sha256", string(hash))
	queryText(r.query, "project", in.Project)
	var done Artifact
	if _, err := c.do(ctx, r, &done); err != nil {
		return a, resumable(err, a.Upload)
	}
	return done, nil
}

// sendPiece appends at offset and answers where the region stands then.
func (c *Client) sendPiece(ctx context.Context, in Upload, id string, offset int64) (int64, error) {
	size := min(uploadPiece, in.Size-offset)
	header := http.Header{}
	header.Set(OffsetField, strconv.FormatInt(offset, 10))
	header.Set("Content-Type", "application/octet-stream")
	next := offset
	err := c.once(ctx, clientCall{
		method: http.MethodPatch, segments: []string{"artifacts", "uploads", id}, header: header,
		body: &uploadBody{from: io.NewSectionReader(in.Body, offset, size), left: size}, size: size,
	}, func(resp *http.Response) error {
		var err error
		next, err = c.readOffset(resp)
		return err
	})
	var own *unreadable
	if errors.As(err, &own) {
		return offset, fmt.Errorf("read artifact: %w", own.error)
	}
	if err == nil && next <= offset {
		err = fleet.Errorf(Internal, "the region took a piece at %d and reports offset %d", offset, next)
	}
	return next, err
}

// uploadBody tells a file that cannot be read, or became shorter, from a bad connection.
type uploadBody struct {
	from io.Reader
	left int64
}

type unreadable struct{ error }

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && b.left > 0:
		return n, &unreadable{io.ErrUnexpectedEOF}
	case err != nil && !errors.Is(err, io.EOF):
		return n, &unreadable{err}
	}
	return n, err
}

// recoverUpload asks where the region stands after a piece failed, unless it was refused.
func (c *Client) recoverUpload(ctx context.Context, id string, failures int, cause error) (int64, error) {
	moved := KindOf(cause) == Conflict // the region stands elsewhere than we thought
	if failures > len(c.pauses) || (!again(cause) && !moved) {
		return 0, cause
	}
	wait := max(c.pauses[failures-1], retryAfter(cause))
	c.retry(Retry{Attempt: failures, Of: len(c.pauses) + 1, Pause: wait, Err: cause})
	if err := pause.For(ctx, wait); err != nil {
		return 0, errors.Join(err, cause)
	}
	return c.uploadOffset(ctx, id)
}

func (c *Client) uploadOffset(ctx context.Context, id string) (int64, error) {
	var offset int64
	err := c.try(ctx, readCall(nil, "artifacts", "uploads", id), func(resp *http.Response) error {
		var err error
		offset, err = c.readOffset(resp)
		return err
	})
	return offset, err
}

func (c *Client) readOffset(resp *http.Response) (int64, error) {
	n, err := strconv.ParseInt(resp.Header.Get(OffsetField), 10, 64)
	if err != nil || n < 0 {
		return 0, fleet.Errorf(Internal, "the region sent no %s", OffsetField).
			WithHint("check that the address is a Holdfast region of this version")
	}
	return n, nil
}

// resumable adds to an error how to resume the upload.
func resumable(err error, upload string) error {
	var e *Error
	if !errors.As(err, &e) || !e.Kind.Retryable() {
		return err
	}
	return e.WithHint("resume upload " + upload)
}
