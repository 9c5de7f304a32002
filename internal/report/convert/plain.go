package convert

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON returns Puppet's report hash.
func JSON(raw []byte, of Of) ([]byte, error) {
	r, err := read(raw, of)
	if err != nil {
		return nil, invalid(err)
	}
	out, err := encode(r)
	return out, invalid(err)
}

// YAML returns the report as Puppet's report processor `http` sends it: an object of Ruby's class
// Puppet::Transaction::Report. Everything inside the object is plain YAML.
func YAML(raw []byte, of Of) ([]byte, error) {
	r, err := read(raw, of)
	if err != nil {
		return nil, invalid(err)
	}
	top := node(r)
	top.Tag = "!ruby/object:Puppet::Transaction::Report"
	var out bytes.Buffer
	out.WriteString("--- ")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(top); err != nil {
		return nil, invalid(err)
	}
	return out.Bytes(), invalid(e.Close())
}

func node(v any) *yaml.Node {
	switch v := v.(type) {
	case object:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, m := range v {
			n.Content = append(n.Content, scalar("!!str", m.name), node(m.value))
		}
		return n
	case list:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, one := range v {
			n.Content = append(n.Content, node(one))
		}
		return n
	case string:
		return scalar("!!str", v)
	case bool:
		if v {
			return scalar("!!bool", "true")
		}
		return scalar("!!bool", "false")
	case json.Number:
		return number(string(v))
	}
	return scalar("!!null", "null")
}

// scalar returns a node of text or another plain value. Text gets quotes if Ruby could read it as something else.
func scalar(tag, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
	if tag == "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// number writes a float as Ruby reads it: with a point, and with a sign of the exponent.
func number(text string) *yaml.Node {
	if !strings.ContainsAny(text, ".eE") {
		return scalar("!!int", text)
	}
	mantissa, exponent, has := strings.Cut(strings.ToLower(text), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if has {
		if !strings.HasPrefix(exponent, "-") && !strings.HasPrefix(exponent, "+") {
			exponent = "+" + exponent
		}
		mantissa += "e" + exponent
	}
	return scalar("!!float", mantissa)
}
