package classify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds how many parts an answer may have after its aliases are resolved.
const maxNodes = 20_000

// These expressions are from Psych::ScalarScanner of Ruby 3, which reads the answer in Puppet.
var (
	octalRE   = regexp.MustCompile(`^[-+]?0[_]*[0-7_,]+$`)
	binaryRE  = regexp.MustCompile(`^[-+]?0b[_]*[01][01_]*$`)
	hexRE     = regexp.MustCompile(`^[-+]?0x[_]*[0-9a-fA-F][0-9a-fA-F_]*$`)
	integerRE = regexp.MustCompile(`^[-+]?(0|[1-9](?:[0-9]|,[0-9]|_[0-9])*)$`)
	floatRE   = regexp.MustCompile(`^[-+]?([0-9][0-9_,]*)?\.[0-9]*([eE][+-][0-9]+)?$`)
	base60RE  = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9]){1,2}(\.[0-9_]*)?$`)
	dateRE    = regexp.MustCompile(`^\d{4}-\d{1,2}-\d{1,2}([Tt ]|\s|$)`)
	infNanRE  = regexp.MustCompile(`(?i)^[-+]?\.(inf|nan)$`)
)

// The function `scalar` returns the value that Ruby reads from a scalar of YAML, as a value of JSON. Ruby reads YAML 1.1, in
// which `no` is false and 12e4 is a string.
func scalar(n *yaml.Node) (any, error) {
	text := n.Value
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return text, nil
	}
	if n.Style&yaml.TaggedStyle != 0 {
		if n.Tag == "!!str" || n.Tag == "!" {
			return text, nil
		}
		return nil, fmt.Errorf("line %d: the tag %s has no value of Puppet", n.Line, n.Tag)
	}
	switch strings.ToLower(text) {
	case "", "~", "null":
		return nil, nil //nolint:nilnil // the value is null
	case "yes", "true", "on":
		return true, nil
	case "no", "false", "off":
		return false, nil
	}
	digits := strings.NewReplacer("_", "", ",", "").Replace(text)
	switch {
	case integerRE.MatchString(text):
		return integer(digits, 10)
	case octalRE.MatchString(text):
		return integer(digits, 8)
	case binaryRE.MatchString(text):
		return integer(strings.Replace(digits, "0b", "", 1), 2)
	case hexRE.MatchString(text):
		return integer(strings.Replace(digits, "0x", "", 1), 16)
	case strings.Trim(text, "+-") != "." && floatRE.MatchString(text):
		return float(strings.TrimSuffix(digits, "."))
	case base60RE.MatchString(text), dateRE.MatchString(text), infNanRE.MatchString(text):
		return nil, fmt.Errorf("line %d: %s is a time or no number for YAML: put it into quotes", n.Line, text)
	case len(text) > 1 && text[0] == ':': // a symbol of Ruby
		return strings.Trim(text[1:], `"'`), nil
	}
	return text, nil
}

// The function `float` returns a number that stays a Float of Puppet, also 1.0.
func float(digits string) (any, error) {
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %s is out of range", digits)
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text), nil
}

func integer(digits string, base int) (any, error) {
	n, ok := new(big.Int).SetString(digits, base)
	if !ok || !n.IsInt64() {
		return nil, fmt.Errorf("the number %s is out of range", digits)
	}
	return n.Int64(), nil
}

// decoder turns YAML into values of JSON.
type decoder struct{ nodes int }

func (d *decoder) value(n *yaml.Node) (any, error) {
	if d.nodes++; d.nodes > maxNodes {
		return nil, errors.New("it has too many values")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return d.value(n.Alias)
	case yaml.SequenceNode:
		out := []any{}
		for _, item := range n.Content {
			v, err := d.value(item)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return d.mapping(n)
	case yaml.ScalarNode:
		return scalar(n)
	case yaml.DocumentNode:
	}
	return nil, fmt.Errorf("line %d: it is no value", n.Line)
}

func (d *decoder) mapping(n *yaml.Node) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i < len(n.Content); i += 2 {
		key, err := d.value(n.Content[i])
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint(key)
		switch key.(type) {
		case string, int64, json.Number, bool:
		default:
			return nil, fmt.Errorf("line %d: a key must be a text", n.Content[i].Line)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("line %d: the key %q is there twice", n.Content[i].Line, name)
		}
		if out[name], err = d.value(n.Content[i+1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
