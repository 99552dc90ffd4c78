// Package documents splits YAML and JSON text into the JSON documents that it holds, each with
// the place where it begins. The command line and the API read manifests by it.
package documents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Document is a piece of a file, as JSON, and where it begins.
type Document struct {
	At   string // file:line
	Dir  string // that file names in it are relative to
	Data json.RawMessage
}

// Split takes text that begins like JSON for JSON, whose numbers and doubled keys
// then reach the region as they are.
func Split(file, dir string, data []byte) ([]Document, error) {
	begin := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), " \t\r\n")
	if ext := filepath.Ext(file); ext == ".json" || (ext != ".yaml" && ext != ".yml" && bytes.HasPrefix(begin, []byte("{"))) {
		return splitJSON(file, dir, data)
	}
	return YAML(file, dir, data)
}

// single gives the one value that a text is, as most files are, by the faster tokenizer.
func single(data []byte) ([]byte, bool) {
	tokens := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	value, err := tokens.ReadValue()
	if err != nil || len(bytes.TrimSpace(data[tokens.InputOffset():])) > 0 {
		return nil, false
	}
	return value, true
}

func splitJSON(file, dir string, data []byte) ([]Document, error) {
	if value, ok := single(data); ok {
		return []Document{{At: place(file, data, int64(bytes.Index(data, value[:1]))), Dir: dir, Data: value}}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	var all []Document
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
			return all, fmt.Errorf("%s:%d: not JSON: %w", place(file, data, begin), column(data, begin), err)
		}
		all = append(all, Document{At: place(file, data, begin), Dir: dir, Data: value})
	}
}

// column counts the characters of a line up to an offset, from 1.
func column(data []byte, offset int64) int {
	line := data[:min(offset, int64(len(data)))]
	return max(1, utf8.RuneCount(line[bytes.LastIndexByte(line, '\n')+1:]))
}

// place names a line of a file.
func place(file string, data []byte, offset int64) string {
	line := 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
	return fmt.Sprintf("%s:%d", file, line)
}
