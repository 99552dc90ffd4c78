package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

const uploadPath = "/api/v1/artifacts/uploads/{id}"

func (s *server) mountArtifacts() {
	post := serve.Endpoint(http.MethodPost, "/api/v1/artifacts", "upload-artifact", "Upload bytes of any size, or begin an upload that can be resumed")
	post.Parameters = append(post.Parameters, serve.QueryParam("project", "who may refer to it", serve.Formatted("name")), serve.QueryParam("sha256", "what must arrive", serve.Formatted("sha256")),
		serve.QueryParam("size", "begin a resumable upload of so many bytes", huma.Schema{Type: huma.TypeInteger, Format: "int64"}),
		serve.QueryParam("resumable", "begin a resumable upload", huma.Schema{Type: huma.TypeBoolean}))
	post.Responses = s.artifactAnswers("201", "202")
	s.Stream(serve.ForOperators, post, s.uploadArtifact)
	s.TakesMedia(post, "application/octet-stream", &huma.Schema{Type: huma.TypeString, Format: "binary"})

	patch := serve.Endpoint(http.MethodPatch, uploadPath, "append-artifact", "Append bytes at Upload-Offset; all pieces but the last are a multiple of 1 MiB")
	patch.Parameters = append(patch.Parameters, serve.PathParam("id"), &huma.Param{
		Name: api.OffsetField, In: "header", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger},
	})
	patch.Responses = map[string]*huma.Response{"204": {Description: "Upload-Offset says where the upload stands"}}
	s.Stream(serve.ForOperators, patch, s.appendArtifact)
	s.TakesMedia(patch, "application/octet-stream", &huma.Schema{Type: huma.TypeString, Format: "binary"})

	for _, method := range []string{http.MethodGet, http.MethodHead} {
		get := serve.Endpoint(method, uploadPath, "upload-offset-"+method, "Where an upload stands (Upload-Offset)")
		get.Parameters = append(get.Parameters, serve.PathParam("id"))
		get.Responses = s.artifactAnswers("200")
		s.Stream(serve.ForOperators, get, s.uploadState)
	}
	done := serve.Endpoint(http.MethodPost, uploadPath+"/complete", "complete-artifact", "Name the uploaded bytes by their SHA-256")
	done.Parameters = append(done.Parameters, serve.PathParam("id"), serve.QueryParam("sha256", "what must have arrived", serve.Formatted("sha256")), serve.QueryParam("project", "as in the upload", serve.Formatted("name")))
	done.Responses = s.artifactAnswers("201")
	s.Stream(serve.ForOperators, done, s.completeArtifact)
}

func (s *server) artifactAnswers(codes ...string) map[string]*huma.Response {
	out := map[string]*huma.Response{}
	for _, code := range codes {
		n, _ := strconv.Atoi(code) // a constant above
		out[code] = &huma.Response{Description: http.StatusText(n)}
	}
	return out
}

func (s *server) uploadArtifact(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	want, err := wantedHash(q.Get("sha256"))
	if err != nil {
		return err
	}
	project, err := s.projectOf(r.Context(), q.Get("project"), "")
	if err != nil {
		return err
	}
	upload, err := s.store.StartUpload(r.Context(), project)
	if err != nil {
		return err
	}
	offset, err := s.receive(w, r, upload.ID, 0)
	if err != nil {
		return err
	}
	size := announcedSize(q.Get("size"))
	resumable, _ := strconv.ParseBool(q.Get("resumable")) // checked with its schema, as the size
	if size >= 0 || resumable || r.Header.Get("Upload-Incomplete") == "?1" {
		w.Header().Set("Location", "/api/v1/artifacts/uploads/"+upload.ID)
		return answerUpload(w, http.StatusAccepted, api.Artifact{Size: max(size, 0), Upload: upload.ID, Offset: offset})
	}
	return s.finishArtifact(w, r, upload.ID, want)
}

func wantedHash(text string) (fleet.Hash, error) {
	if text == "" {
		return "", nil
	}
	return fleet.Hash(text), fleet.ValidateHash("sha256", fleet.Hash(text))
}

// announcedSize is -1 when nothing was announced.
func announcedSize(text string) int64 {
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return size
}

// receive stores the body of a request from an offset on, in chunks that are committed one
// by one, and says where the upload stands then.
func (s *server) receive(w http.ResponseWriter, r *http.Request, id string, offset int64) (int64, error) {
	hash := serve.CallOf(r.Context()).Hash
	memory := s.uploading.Begin(string(hash[:]))
	defer memory.End()
	if err := memory.Grow(r.Context(), postgres.ChunkSize); err != nil {
		return offset, err
	}
	body := s.RollingBody(w, r)
	offset, err := s.store.AppendUpload(r.Context(), id, offset, &chunked{from: body}, true)
	return offset, errors.Join(err, body.Settle())
}

// chunked gives whole chunks of a body, and the part of one only at its real end: what a
// broken connection cut off must not count as the end of the bytes.
type chunked struct {
	from  io.Reader
	chunk []byte // of ChunkSize, read from the connection
	rest  []byte // what of it was not given on yet
	err   error
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && c.err == nil {
		c.fill()
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunked) fill() {
	if c.chunk == nil {
		c.chunk = make([]byte, postgres.ChunkSize)
	}
	n := 0
	for n < len(c.chunk) && c.err == nil {
		var read int
		read, c.err = c.from.Read(c.chunk[n:])
		n += read
	}
	c.rest = c.chunk[:n]
	if c.err == nil || c.err == io.EOF { //nolint:errorlint // an end that is wrapped is none
		return
	}
	if n < len(c.chunk) {
		c.rest = nil
	}
	if !errors.As(c.err, new(*fleet.Error)) { // else the caller is refused
		c.err = fleet.Errorf(fleet.Communication, "the upload was interrupted").WithHint("continue from the offset that GET returns")
	}
}

func (s *server) appendArtifact(w http.ResponseWriter, r *http.Request) error {
	upload, err := s.upload(r)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(r.Header.Get(api.OffsetField), 10, 64)
	if err != nil || offset < 0 {
		return fleet.Errorf(fleet.Invalid, "the offset of the piece is required").At(api.OffsetField).
			WithHint("GET this upload to see its current offset")
	}
	if upload.Received%postgres.ChunkSize != 0 {
		return fleet.Errorf(fleet.IllegalState, "the upload already has its last piece: one that is not a multiple of %d bytes", postgres.ChunkSize).At(api.OffsetField).
			WithHint("complete the upload, or start another")
	}
	offset, err = s.receive(w, r, upload.ID, offset)
	if err != nil {
		w.Header().Set(api.OffsetField, strconv.FormatInt(upload.Received, 10))
		return err
	}
	w.Header().Set(api.OffsetField, strconv.FormatInt(offset, 10))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// upload finds the upload of a request; one of another project does not exist for it.
func (s *server) upload(r *http.Request) (postgres.Upload, error) {
	id := chi.URLParam(r, "id")
	missing := fleet.Errorf(fleet.NotFound, "upload %.64q not found", id).At("id").WithHint("start one: POST /api/v1/artifacts")
	if !fleet.ValidID(id) {
		return postgres.Upload{}, missing
	}
	u, err := s.store.GetUpload(r.Context(), id)
	if err == nil && !serve.CallOf(r.Context()).Sees(u.Project) {
		return postgres.Upload{}, missing
	}
	return u, err
}

func (s *server) uploadState(w http.ResponseWriter, r *http.Request) error {
	u, err := s.upload(r)
	if err != nil {
		return err
	}
	return answerUpload(w, http.StatusOK, api.Artifact{Size: u.Received, Upload: u.ID, Offset: u.Received})
}

func (s *server) completeArtifact(w http.ResponseWriter, r *http.Request) error {
	want, err := wantedHash(r.URL.Query().Get("sha256"))
	if err != nil {
		return err
	}
	u, err := s.upload(r)
	if fleet.KindOf(err) == fleet.NotFound && want != "" {
		return s.completedBefore(w, r, want, err)
	}
	if err != nil {
		return err
	}
	return s.finishArtifact(w, r, u.ID, want)
}

// completedBefore answers a repeat whose first answer was lost: the upload is gone because
// its bytes have their name.
func (s *server) completedBefore(w http.ResponseWriter, r *http.Request, want fleet.Hash, missing error) error {
	project, err := s.projectOf(r.Context(), r.URL.Query().Get("project"), "")
	if err != nil {
		return err
	}
	size, err := s.store.BodySize(r.Context(), project, want)
	if fleet.KindOf(err) == fleet.NotFound {
		return missing
	}
	if err != nil {
		return err
	}
	return answerArtifact(w, http.StatusCreated, api.Artifact{SHA256: want, Size: size})
}

func (s *server) finishArtifact(w http.ResponseWriter, r *http.Request, id string, want fleet.Hash) error {
	// The bytes are complete: name them even if the client has disconnected.
	content, err := s.store.FinishUpload(context.WithoutCancel(r.Context()), id, want)
	if err != nil {
		return err
	}
	return answerArtifact(w, http.StatusCreated, api.Artifact{SHA256: content.Hash, Size: content.Size})
}

func answerUpload(w http.ResponseWriter, status int, a api.Artifact) error {
	w.Header().Set(api.OffsetField, strconv.FormatInt(a.Offset, 10))
	return answerArtifact(w, status, a)
}

func answerArtifact(w http.ResponseWriter, status int, a api.Artifact) error {
	return serve.AnswerJSON(w, status, a)
}
