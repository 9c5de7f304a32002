package classify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	if problem := unfit(c.Command); problem != "" {
		return tutti.Classification{}, tutti.Errorf(tutti.CodeUnavailable, "%s %s", c.Command, problem)
	}
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
// keys beside these, and so does Parse. An empty output, and a hash that has only other keys, is no answer.
func Parse(raw []byte) (tutti.Classification, error) {
	var out tutti.Classification
	in, err := read(raw)
	if err != nil {
		return out, tutti.Errorf(tutti.CodeInvalid, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	known := 0
	for _, key := range []string{"classes", "parameters", "environment"} {
		if _, is := in[key]; is {
			known++
		}
	}
	if known == 0 && len(in) > 0 {
		return out, tutti.Errorf(tutti.CodeInvalid, "it must be a YAML hash with classes, parameters or environment, and has only other keys")
	}
	switch name := in["environment"].(type) {
	case nil:
	case string:
		out.Environment = name
	default:
		return out, tutti.Errorf(tutti.CodeInvalid, "environment: %v is not a text", name)
	}
	if out.Classes, err = classes(in["classes"]); err != nil {
		return out, err
	}
	switch parameters := in["parameters"].(type) {
	case nil:
	case map[string]any:
		out.Parameters = map[string]json.RawMessage{}
		for name, value := range parameters {
			if out.Parameters[name], err = json.Marshal(value); err != nil {
				return out, tutti.Wrap(tutti.CodeInvalid, err, "parameters: %s", name)
			}
		}
	default:
		return out, tutti.Errorf(tutti.CodeInvalid, "parameters: must be a hash")
	}
	return out, out.Validate()
}

// The function `read` reads one document with a hash.
func read(raw []byte) (map[string]any, error) {
	from := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	if err := from.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("this is no YAML: %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it must be a YAML hash with classes, parameters or environment")
	}
	if err := from.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("a second YAML document follows: print one")
	}
	return (&decoder{}).mapping(doc.Content[0])
}

// The function `classes` returns classes by the names that Puppet gives them, with their parameters or null.
func classes(in any) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	add := func(name string, parameters any) error {
		encoded, err := json.Marshal(parameters)
		if err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "classes: the parameters of %s", name)
		}
		if string(encoded) == "{}" { // like a class without parameters
			encoded = json.RawMessage("null")
		}
		out[strings.ToLower(strings.TrimPrefix(name, "::"))] = encoded
		return nil
	}
	switch in := in.(type) {
	case nil:
	case []any:
		for _, item := range in {
			name, is := item.(string)
			if !is {
				return nil, tutti.Errorf(tutti.CodeInvalid, "classes: a list must have names only")
			}
			if err := add(name, nil); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name, parameters := range in {
			if err := add(name, parameters); err != nil {
				return nil, err
			}
		}
	default:
		return nil, tutti.Errorf(tutti.CodeInvalid, "classes: must be a list or a hash")
	}
	return out, nil
}
