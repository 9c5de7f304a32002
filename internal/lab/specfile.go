package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// specReader converts the YAML of a lab file to a Spec. specReader keeps the first error with its line.
type specReader struct {
	path string // the path as the user wrote it
	dir  string // absolute, of the file
	err  error
}

func parseSpec(path, dir string, text []byte) (Spec, error) {
	r := &specReader{path: path, dir: dir}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return Spec{}, tutti.Errorf(tutti.CodeInvalid, "%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return Spec{}, tutti.Errorf(tutti.CodeInvalid, "%s:1: the file is empty: it needs `lab: NAME` and `hosts: [NAME, ...]`", path)
	}
	spec := r.spec(doc.Content[0])
	if r.err == nil {
		if err := spec.Validate(); err != nil {
			r.fail(r.lineOf(doc.Content[0], err), "%s", err.Error())
		}
	}
	if r.err != nil {
		return Spec{}, r.err
	}
	return spec, nil
}

func (r *specReader) fail(line int, format string, args ...any) {
	if r.err == nil {
		r.err = tutti.Errorf(tutti.CodeInvalid, "%s:%d: %s", r.path, line, fmt.Sprintf(format, args...))
	}
}

// lineOf returns the line of the value that a validation error quotes. If lineOf finds no such value, it returns
// the first line.
func (r *specReader) lineOf(n *yaml.Node, err error) int {
	line := 1
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && n.Value != "" && strings.Contains(err.Error(), fmt.Sprintf("%q", n.Value)) {
			line = n.Line
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
	return line
}

func (r *specReader) spec(n *yaml.Node) Spec {
	var s Spec
	r.mapping(n, "a lab file", map[string]func(*yaml.Node){
		"lab":          func(v *yaml.Node) { s.Name = r.word(v) },
		"domain":       func(v *yaml.Node) { s.Domain = r.word(v) },
		"mirror":       func(v *yaml.Node) { s.Mirror = r.word(v) },
		"release":      func(v *yaml.Node) { s.Release = r.word(v) },
		"packages":     func(v *yaml.Node) { s.Packages = r.words(v) },
		"enabled":      func(v *yaml.Node) { s.Enabled = r.words(v) },
		"cached_facts": func(v *yaml.Node) { s.CachedFacts = r.words(v) },
		"binds":        func(v *yaml.Node) { s.Binds = r.binds(v) },
		"hosts":        func(v *yaml.Node) { s.Hosts = r.hosts(v) },
	})
	return s
}

// mapping calls the function for each key in n. Unknown and repeated keys are errors. The error names the known
// keys.
func (r *specReader) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "want %s: a mapping of keys to values", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := keys[key.Value]
		if !ok {
			r.fail(key.Line, "unknown key %q in %s: the known keys are %s", key.Value, what, strings.Join(sortedKeys(keys), ", "))
			return
		}
		if first, ok := seen[key.Value]; ok {
			r.fail(key.Line, "key %q is already on line %d", key.Value, first)
			return
		}
		seen[key.Value] = key.Line
		read(value)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *specReader) word(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fail(n.Line, "want one word here")
	}
	return n.Value
}

func (r *specReader) words(n *yaml.Node) []string {
	if n.Kind != yaml.SequenceNode {
		r.fail(n.Line, "want a list here, like [one, two]")
		return nil
	}
	var words []string
	for _, item := range n.Content {
		words = append(words, r.word(item))
	}
	return words
}

// hosts reads the hosts. The hosts are either a list of names, or a mapping of names to the settings of each
// host.
func (r *specReader) hosts(n *yaml.Node) []HostSpec {
	var hosts []HostSpec
	if n.Kind == yaml.SequenceNode {
		for _, name := range r.words(n) {
			hosts = append(hosts, HostSpec{Name: name})
		}
		return hosts
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "want the hosts: a list of names, or a mapping of names to the settings of each host")
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		h := HostSpec{Name: r.word(n.Content[i])}
		if own := n.Content[i+1]; own.Tag != "!!null" {
			r.mapping(own, "a host", map[string]func(*yaml.Node){
				"aliases":  func(v *yaml.Node) { h.Aliases = r.words(v) },
				"release":  func(v *yaml.Node) { h.Release = r.word(v) },
				"packages": func(v *yaml.Node) { h.Packages = r.words(v) },
				"prepare":  func(v *yaml.Node) { h.Prepare = r.script(v) },
			})
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// The method `binds` reads entries of the form SOURCE:DESTINATION. The binds are read-only, because hosts must
// not be able to write to the outer machine.
func (r *specReader) binds(n *yaml.Node) []Bind {
	var binds []Bind
	for _, text := range r.words(n) {
		source, destination, ok := strings.Cut(text, ":")
		if !ok {
			r.fail(n.Line, "bind %q: want SOURCE:DESTINATION", text)
			return nil
		}
		binds = append(binds, Bind{Source: r.absolute(source), Destination: destination, ReadOnly: true})
	}
	return binds
}

// The method `script` reads the file that contains a host's preparation script.
func (r *specReader) script(n *yaml.Node) string {
	text, err := readScript(r.absolute(r.word(n)))
	if err != nil {
		r.fail(n.Line, "prepare %q: %s: name a file with a shell script, with a path relative to the lab file", n.Value, err)
	}
	return text
}

// readScript reads a script, which must be a regular file. The reading of another kind of file might never end.
func readScript(path string) (string, error) {
	info, err := os.Stat(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return "", failed.Err // the caller's error already names the path
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	if info.Size() == 0 || info.Size() > maxScript {
		return "", fmt.Errorf("the file has %d bytes, but must have from 1 to %d", info.Size(), maxScript)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// absolute returns the absolute path for a path in the lab file.
func (r *specReader) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.dir, path)
}
