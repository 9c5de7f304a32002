package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// MaxYAML is the largest report in YAML, in bytes. MaxYAML also limits what aliases may expand to.
const MaxYAML = 8 << 20

const (
	maxYAMLDepth = 50          // Puppet's reports have eight levels
	maxYAMLOut   = 2 * MaxYAML // bytes of JSON
)

// A report has these members since Puppet 4. Some of them are at the end of the file, so a report
// that was cut off lacks them.
var wholeReport = []string{"host", "time", "transaction_uuid", "status", "logs", "metrics", "resource_statuses", "corrective_change"}

// FromYAML converts a report from the form of Puppet's file `lastrunreport` into the form
// that Parse reads. FromYAML ignores Ruby tags and creates no objects of a class. FromYAML returns
// CodeInvalid if the input is not a report, is incomplete, or is larger than MaxYAML.
func FromYAML(raw []byte) ([]byte, error) {
	if len(raw) > MaxYAML {
		return nil, tutti.Errorf(tutti.CodeInvalid, "a report of %d bytes, at most %d", len(raw), MaxYAML)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "this is no YAML")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, tutti.Errorf(tutti.CodeInvalid, "this is no report of Puppet: no mapping")
	}
	top := map[string]bool{}
	for i := 0; i < len(doc.Content[0].Content); i += 2 {
		top[doc.Content[0].Content[i].Value] = true
	}
	for _, name := range wholeReport {
		if !top[name] {
			return nil, tutti.Errorf(tutti.CodeInvalid, "this is not a complete report of Puppet: it has no %s", name)
		}
	}
	var out bytes.Buffer
	if err := encodeNode(&out, doc.Content[0], 0); err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet")
	}
	return out.Bytes(), nil
}

// encodeNode writes a YAML node as JSON. The function writes the content of an alias each time. The total size is
// limited here, and the limit of the depth stops an alias that contains itself.
func encodeNode(out *bytes.Buffer, n *yaml.Node, depth int) error {
	switch {
	case depth > maxYAMLDepth:
		return errors.New("it is nested too deeply")
	case out.Len() > maxYAMLOut:
		return errors.New("its aliases make it too large")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return encodeNode(out, n.Alias, depth+1)
	case yaml.MappingNode:
		return encodeMembers(out, n.Content, depth+1)
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := encodeNode(out, c, depth+1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	default:
		return encodeScalar(out, n)
	}
}

func encodeMembers(out *bytes.Buffer, content []*yaml.Node, depth int) error {
	out.WriteByte('{')
	for i := 0; i < len(content); i += 2 {
		key := content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return errors.New("a key is not text")
		}
		if i > 0 {
			out.WriteByte(',')
		}
		if err := encodeText(out, key.Value); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := encodeNode(out, content[i+1], depth); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// encodeScalar writes numbers, true, false and null as Ruby writes them. All other scalars become text, also times.
func encodeScalar(out *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		out.WriteString("null")
		return nil
	case "!!bool":
		out.WriteString(strconv.FormatBool(strings.EqualFold(n.Value, "true")))
		return nil
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			out.WriteString(strconv.FormatInt(i, 10))
			return nil
		}
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			raw, err := json.Marshal(f)
			out.Write(raw)
			return err
		}
	}
	return encodeText(out, n.Value)
}

func encodeText(out *bytes.Buffer, text string) error {
	raw, err := json.Marshal(text)
	out.Write(raw)
	return err
}
