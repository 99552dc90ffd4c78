package documents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML makes JSON of each document. It reads nodes and not Go values, so that a config
// keeps the order of its fields and all digits of its numbers, and every refusal has a line.
func YAML(file, dir string, data []byte) ([]Document, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	room := AliasRoom + aliasFactor*len(data)
	var all []Document
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("%s: not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(node.Content) == 0 || node.Content[0].ShortTag() == "!!null" {
			continue // nothing between two separators
		}
		w := yamlWriter{room: &room}
		if err := w.value(node.Content[0], 0); err != nil {
			return all, fmt.Errorf("%s:%w", file, err)
		}
		all = append(all, Document{At: fmt.Sprintf("%s:%d", file, node.Content[0].Line), Dir: dir, Data: w.out.Bytes()})
	}
}

const (
	maxYAMLDepth = 256
	// AliasRoom bounds what aliases and merges may add to a text, in bytes; a longer text may add aliasFactor
	// times its length more. Aliases of aliases multiply: without a bound, 1 KB of text makes gigabytes.
	AliasRoom   = 4 << 20
	aliasFactor = 16
	// aliasedValue is what a repeated value costs beside its text.
	aliasedValue = 16
)

// yamlWriter writes nodes as JSON.
type yamlWriter struct {
	out     bytes.Buffer
	room    *int // what aliases may still add, in all documents
	aliases int  // that are being written
}

// repeat takes the room of a value that is written once more.
func (w *yamlWriter) repeat(n *yaml.Node) error {
	if *w.room -= aliasedValue + len(n.Value); *w.room < 0 {
		return at(n, "aliases and merges repeat too much of the text: write it out, or declare a template")
	}
	return nil
}

// at is an error with its line, which the file name goes before.
func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%d: %w", n.Line, fmt.Errorf(format, args...))
}

func (w *yamlWriter) value(n *yaml.Node, depth int) error {
	if depth > maxYAMLDepth {
		return at(n, "nested deeper than %d", maxYAMLDepth)
	}
	if w.aliases > 0 {
		if err := w.repeat(n); err != nil {
			return err
		}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.again(n.Alias, depth+1)
	case yaml.MappingNode:
		fields, err := w.fieldsOf(n, depth)
		if err != nil {
			return err
		}
		return w.object(fields, depth)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	case yaml.ScalarNode, yaml.DocumentNode:
	}
	return w.scalar(n)
}

// again writes a value that stands elsewhere.
func (w *yamlWriter) again(n *yaml.Node, depth int) error {
	w.aliases++
	defer func() { w.aliases-- }()
	return w.value(n, depth)
}

// field is a key of a mapping and what it holds; merged says that it stands in another mapping.
type field struct {
	key, value *yaml.Node
	merged     bool
}

// fieldsOf lists the fields of a mapping; those merged in by "<<" give way to its own.
func (w *yamlWriter) fieldsOf(n *yaml.Node, depth int) ([]field, error) {
	if depth > maxYAMLDepth {
		return nil, at(n, "nested deeper than %d", maxYAMLDepth)
	}
	var own, merged []field
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			return nil, at(key, "a key that is no text")
		}
		if key.ShortTag() == "!!merge" {
			more, err := w.mergedFields(value, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		if seen[key.Value] {
			return nil, at(key, "key %q stands here twice", key.Value)
		}
		seen[key.Value] = true
		own = append(own, field{key: key, value: value})
	}
	for _, f := range merged {
		if !seen[f.key.Value] {
			seen[f.key.Value], f.merged = true, true
			own = append(own, f)
		}
	}
	return own, nil
}

func (w *yamlWriter) mergedFields(n *yaml.Node, depth int) ([]field, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if err := w.repeat(n); err != nil {
		return nil, err
	}
	if n.Kind == yaml.MappingNode {
		all, err := w.fieldsOf(n, depth)
		for _, f := range all {
			if err := w.repeat(f.key); err != nil {
				return nil, err
			}
		}
		return all, err
	}
	if n.Kind != yaml.SequenceNode || depth > maxYAMLDepth {
		return nil, at(n, "<< takes a mapping or a list of mappings")
	}
	var all []field
	for _, item := range n.Content {
		more, err := w.mergedFields(item, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (w *yamlWriter) object(fields []field, depth int) error {
	w.out.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.text(f.key.Value); err != nil {
			return err
		}
		w.out.WriteByte(':')
		write := w.value
		if f.merged {
			write = w.again
		}
		if err := write(f.value, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *yamlWriter) text(s string) error {
	data, err := json.Marshal(s)
	w.out.Write(data)
	return err
}

func (w *yamlWriter) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.out.WriteString("null")
		return nil
	case "!!str":
		return w.plainText(n)
	case "!!timestamp": // JSON has no time: it stays the text that it is
		return w.text(n.Value)
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return at(n, "%.40q is no truth value", n.Value)
		}
		fmt.Fprint(&w.out, b)
		return nil
	case "!!int", "!!float":
		return w.number(n)
	}
	return at(n, "%s has no form in JSON", n.ShortTag())
}
