package classify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// maxOutput is the largest output of the script, and maxSaid how much of its standard error an error shows, in bytes.
const (
	maxOutput = 256 << 10
	maxSaid   = 500
)

// killAfter is how long the server waits for the end of a script that it has killed.
const killAfter = 2 * time.Second

// Ask runs the script for one node, as `node_terminus = exec` of Puppet does.
func (c Config) Ask(ctx context.Context, node tutti.NodeName) (tutti.Classification, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Command, string(node))
	// The script gets nothing of the server's environment.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the script has started ends with it
	group := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = group
	cmd.WaitDelay = killAfter
	out, said := &bounded{most: maxOutput, over: cancel}, &bounded{most: maxSaid}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	if cmd.Process != nil {
		_ = group()
	}
	switch {
	case out.cut:
		return tutti.Classification{}, tutti.Errorf(tutti.CodeInvalid, "%s: its output has more than %d bytes", c.Command, maxOutput)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return tutti.Classification{}, tutti.Errorf(tutti.CodeUnavailable, "%s: no answer within %s", c.Command, c.Timeout)
	case err != nil:
		text := err.Error()
		if words := strings.TrimSpace(said.kept.String()); words != "" {
			text += ": " + words
		}
		return tutti.Classification{}, tutti.Errorf(tutti.CodeUnavailable, "%s: %s", c.Command, plain.Words(tutti.OneLine(text)))
	}
	answer, err := Parse(out.kept.Bytes())
	return answer, tutti.Wrap(tutti.CodeInvalid, err, "%s: its answer for %s", c.Command, node)
}

// bounded keeps the first bytes that are written to it. It does not embed the buffer, because the buffer's method ReadFrom
// has no bound.
type bounded struct {
	kept bytes.Buffer
	most int
	cut  bool
	over func() // called when there is too much
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.kept.Len()
	if len(p) > room {
		b.cut = true
		if b.over != nil {
			b.over()
		}
	}
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}

// Parse reads the output of the script: classes as a list or a hash, parameters, and environment. Puppet ignores other
// keys, and so does Parse. An empty output is no answer.
func Parse(raw []byte) (tutti.Classification, error) {
	var out tutti.Classification
	var in struct {
		Classes     yaml.Node      `yaml:"classes"`
		Parameters  map[string]any `yaml:"parameters"`
		Environment string         `yaml:"environment"`
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return out, tutti.Errorf(tutti.CodeInvalid, "this is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return out, tutti.Errorf(tutti.CodeInvalid, "it must be a YAML hash with classes, parameters or environment")
	}
	if err := doc.Decode(&in); err != nil {
		return out, tutti.Errorf(tutti.CodeInvalid, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out.Environment = in.Environment
	var err error
	if out.Classes, err = classes(&in.Classes); err != nil {
		return out, err
	}
	for name, value := range in.Parameters {
		encoded, err := json.Marshal(value)
		if err != nil {
			return out, tutti.Errorf(tutti.CodeInvalid, "parameters: %q cannot be a value of Puppet: %s", name, err.Error())
		}
		if out.Parameters == nil {
			out.Parameters = map[string]json.RawMessage{}
		}
		out.Parameters[name] = encoded
	}
	return out, out.Validate()
}

func classes(n *yaml.Node) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	switch {
	case n.Kind == 0 || n.ShortTag() == "!!null":
	case n.Kind == yaml.SequenceNode:
		var names []string
		if err := n.Decode(&names); err != nil {
			return nil, tutti.Errorf(tutti.CodeInvalid, "classes: a list must have names only")
		}
		for _, name := range names {
			out[name] = json.RawMessage("null")
		}
	case n.Kind == yaml.MappingNode:
		var with map[string]any
		if err := n.Decode(&with); err != nil {
			return nil, tutti.Errorf(tutti.CodeInvalid, "classes: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		for name, parameters := range with {
			encoded, err := json.Marshal(parameters)
			if err != nil {
				return nil, tutti.Errorf(tutti.CodeInvalid, "classes: the parameters of %s cannot be values of Puppet: %s", name, err.Error())
			}
			if string(encoded) == "{}" { // like a class without parameters
				encoded = json.RawMessage("null")
			}
			out[name] = encoded
		}
	default:
		return nil, tutti.Errorf(tutti.CodeInvalid, "classes: must be a list or a hash")
	}
	return out, nil
}
