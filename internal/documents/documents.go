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
				begin = max(0, syntax.Offset-1) // it counts what was read
			}
			line, column := Position(data, begin)
			return all, fmt.Errorf("%s:%d:%d: not JSON: %w", file, line, column, err)
		}
		all = append(all, Document{At: place(file, data, begin), Dir: dir, Data: value})
	}
}

// Position counts lines and characters from 1, up to an offset in bytes.
func Position(data []byte, offset int64) (line, column int) {
	before := data[:min(offset, int64(len(data)))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCountInString(strings.TrimPrefix(string(before[start:]), "\ufeff"))
}

// place names a line of a file.
func place(file string, data []byte, offset int64) string {
	line, _ := Position(data, offset)
	return fmt.Sprintf("%s:%d", file, line)
}
