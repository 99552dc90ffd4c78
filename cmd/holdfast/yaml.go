package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-io/holdfast/internal/documents"
)

// writeYAML writes the same as writeJSON, as YAML: fields keep their order and numbers their digits.
func writeYAML(w io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// yamlNode reads the next JSON value.
func yamlNode(from *json.Decoder) (*yaml.Node, error) {
	token, err := from.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if t == '{' {
			node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		for from.More() { // a key of an object is a string token, so one loop serves both
			child, err := yamlNode(from)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle
		}
		_, err := from.Token() // the closing one
		return node, err
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	case string:
		node := &yaml.Node{}
		node.SetString(t)
		if documents.LooksLikeNumber(t) { // to some parser, not only to this one
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}
