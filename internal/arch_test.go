// Package internal_test checks the architecture. The package checks which layer may
// import which other layer, and that pure packages are pure. It also checks that packages
// have comments and that files are short. The package reads only the source, so it needs
// no build.
package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/tutti-project/tutti"
	maxLines = 600
)

// These are the layers. A package belongs to the layer of the first directory below
// internal/, unless the map `layers` contains the package's whole path. A package may import only
// lower layers, and never another package of its own layer.
const (
	words    = "the root package"  // only the domain, with the standard library
	speech   = "speech"            // pure; the messages between agents, operators and the server
	assets   = "assets"            // packages outside internal/ that embed files
	base     = "base"              // pure
	rules    = "rules"             // pure
	decision = "decision"          // pure
	converge = "convergence"       // pure; uses the results of the decisions
	folded   = "fold"              // pure; the fold of the whole log
	readers  = "readers"           // pure; use the fold to answer requests, without the writer
	meters   = "meters"            // numbers for Prometheus, from versions of the fold and from events
	parts    = "parts"             // parts of the server, each with one subject; they do not use the writer
	scribe   = "the writer"        // writer of the log; knows transactions, but neither nodes nor operators
	shared   = "the server's core" // packages that both kinds of handlers use
	handlers = "handlers"          // handlers for operators and for nodes; only the server uses them
	points   = "kill points"       // where a test may kill a process
	system   = "system"            // small tools of the operating system
	sibling  = "siblings"          // adapters
	room     = "rooms"             // each package combines adapters for one purpose; the wiring uses only this combination
	wiring   = "wiring"
	command  = "commands"
	support  = "test support" // only tests import it
)

var layers = map[string]string{
	"board": base, "dag": base, "layout": base, "compare": base, "redact": base, "chaos": base, "lines": base, "report": base, "plain": base, "seal": base, "watch": base,
	"plan": rules, "site": rules, "stack": rules, "policy": rules, "data": rules, "audit": rules,
	"selector": rules, "observe": rules, "fleet": rules, "archive": rules, "retain": rules, "sweep": rules,
	"engine": decision, "converge": converge, "fold": folded, "explain": readers, "metrics": meters,
	"presence": parts, "share": parts, "denials": parts, "replica": parts, "past": parts,
	"writer":      scribe,
	"server/core": shared, "server/nodes": handlers, "server/operators": handlers,
	"killpoint": points,
	"durable":   system, "excerpt": system, "pidfd": system, "space": system,
	"server": sibling, "agent": sibling, "natsbus": sibling, "puppet": sibling, "identity": sibling,
	"httpapi": sibling, "doctor": sibling, "cli": sibling, "web": sibling, "lab": sibling, "control": sibling, "outward": sibling, "classify": sibling, "uidoor": sibling,
	// The doctor reads an agent's directory, Puppet, credentials and /proc. The package that collects these facts is
	// therefore above the adapters. The checks in doctor are in the adapters' layer and read nothing.
	"doctor/collect": room,
	// Demos, tests on hosts and benchmarks start fleets. Fleets need labs, the commands' types and the API's
	// client.
	"stage": room,
	// A machine that leaves its fleet uses the bus, Puppet's runs and its credentials.
	"machine": room,
	// An operator's side signs, connects and pushes. The code for a server's directory starts the bus to read
	// the stored data.
	"operator": room, "serverdir": room,
	"app":    wiring,
	"memory": support, "powerfs": support, "storetest": support, "bustest": support, "bench": support, "servertest": support, "defence": support, "hostile": support, "changelog": support, "promtest": support, "check": support, "release": support, "packages": support, "uibuild": support,
}

// The map `below` contains, for each layer, the layers that it may import.
var below = map[string][]string{
	words:    {},
	speech:   {words},
	assets:   {words},
	base:     {words, speech},
	points:   {},
	system:   {words, points},
	rules:    {words, speech, base},
	decision: {words, speech, base, rules},
	converge: {words, speech, base, rules, decision},
	folded:   {words, speech, base, rules, decision, converge},
	readers:  {words, speech, base, rules, decision, converge, folded},
	meters:   {words, speech, base, rules, decision, converge, folded, readers},
	parts:    {words, speech, base, rules, decision, converge, folded},
	scribe:   {words, speech, base, rules, decision, converge, folded, readers, parts, points},
	shared:   {words, speech, base, rules, decision, converge, folded, readers, parts, scribe, points, system},
	handlers: {words, speech, base, rules, decision, converge, folded, readers, parts, scribe, points, system, shared},
	sibling:  {words, speech, base, rules, decision, converge, folded, readers, meters, parts, scribe, points, system, assets},
	room:     {words, speech, base, rules, decision, converge, folded, readers, meters, parts, scribe, points, system, assets, sibling},
	wiring:   {words, speech, base, rules, decision, converge, folded, readers, meters, parts, scribe, points, system, assets, sibling, room},
	command:  {words, speech, wiring},
	support:  {words, speech, base, rules, decision, converge, folded, readers, meters, parts, scribe, points, system, assets, sibling, room, wiring, support},
}

func pure(layer string) bool {
	return slices.Contains([]string{words, speech, base, rules, decision, converge, folded, readers}, layer)
}

// layerOf returns the layer of a package. The package may import everything below the directory `own`.
func layerOf(dir string) (layer, own string) {
	first, rest, _ := strings.Cut(dir, "/")
	switch {
	case dir == ".":
		return words, dir
	case first == "cmd":
		return command, dir
	case dir == "api", dir == "wire":
		return speech, dir
	case first != "internal":
		return assets, first
	}
	if own := layers[rest]; own != "" {
		return own, dir
	}
	name, _, _ := strings.Cut(rest, "/")
	return layers[name], "internal/" + name
}

// source is one parsed file.
type source struct {
	path, dir string
	text      []byte
	file      *ast.File
	at        *token.FileSet
	test      bool
}

func (s source) line(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.at.Position(n.Pos()).Line)
}

// violations returns the violations of the rules in a source tree, one line each.
func violations(tree fs.FS) ([]string, error) {
	sources, err := parse(tree)
	var found []string
	documented := map[string]bool{}
	for _, s := range sources {
		if !s.test {
			doc := s.file.Doc.Text()
			documented[s.dir] = documented[s.dir] || strings.HasPrefix(doc, "Package "+s.file.Name.Name+" ") ||
				s.file.Name.Name == "main" && strings.HasPrefix(doc, "Command ")
		}
		found = append(found, checkLength(s)...)
		found = append(found, checkImports(s)...)
		found = append(found, checkPurity(s)...)
	}
	for dir, ok := range documented {
		if !ok {
			found = append(found, dir+": the package has no doc comment that begins with its name")
		}
	}
	slices.Sort(found)
	return found, err
}

func parse(tree fs.FS) ([]source, error) {
	var sources []source
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base == "testdata" || base == "bin" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		at := token.NewFileSet()
		file, err := parser.ParseFile(at, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		sources = append(sources, source{name, path.Dir(name), text, file, at, strings.HasSuffix(name, "_test.go")})
		return nil
	})
	return sources, err
}

func checkLength(s source) []string {
	lines := strings.Count(string(s.text), "\n")
	if lines <= maxLines || ast.IsGenerated(s.file) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines, at most %d: split it by noun", s.path, lines, maxLines)}
}

func checkImports(s source) []string {
	if s.test {
		return nil // tests may combine any packages
	}
	layer, own := layerOf(s.dir)
	if layer == "" {
		return []string{s.dir + ": the package is in no layer: add it to the layers of this test"}
	}
	var found []string
	refuse := func(spec *ast.ImportSpec, why string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s imports %s: ", s.line(spec), s.dir, spec.Path.Value)+fmt.Sprintf(why, args...))
	}
	for _, spec := range s.file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // no error is possible, because the parser has accepted the import
		if imported != module && !strings.HasPrefix(imported, module+"/") {
			if layer == words && strings.Contains(strings.Split(imported, "/")[0], ".") {
				refuse(spec, "the root package imports the standard library only")
			}
			continue
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		if dir == "" {
			dir = "."
		}
		to, theirs := layerOf(dir)
		switch {
		case dir == "internal/natsbus/embed" && layer != wiring && layer != support && s.dir != "internal/serverdir":
			refuse(spec, "only app and tests do")
		case s.dir == "internal/server" && (to == shared || to == handlers):
		case to == handlers:
			refuse(spec, "only the server does")
		case theirs == own, layer == command && dir == "internal/cli":
		case layer == to && layer != support:
			refuse(spec, "%s are strangers to each other", layer)
		case to == "": // the imported package is in no layer; the check of that package reports this
		case !slices.Contains(below[layer], to):
			refuse(spec, "%s must not import %s", layer, to)
		}
	}
	return found
}

// The packages in `impure` give access to the outside world. A slash at the end means all packages below this path.
var impure = []string{"os", "os/", "net", "net/", "syscall", "log", "log/", "math/rand", "math/rand/", "crypto/rand", "database/", "io/ioutil"}

// The packages in `harmless` are below impure packages, but only parse text.
var harmless = []string{"net/url", "net/netip"}

var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}

func checkPurity(s source) []string {
	layer, _ := layerOf(s.dir)
	if s.test || !pure(layer) {
		return nil
	}
	var found []string
	refuse := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s is pure: %s", s.line(n), s.dir, what))
	}
	clock := "" // the name of package time in this file
	for _, spec := range s.file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		bad := slices.ContainsFunc(impure, func(p string) bool {
			return imported == p || strings.HasSuffix(p, "/") && strings.HasPrefix(imported, p)
		})
		if bad && !slices.Contains(harmless, imported) {
			refuse(spec, "it must not import "+imported)
		}
		if imported == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
			if clock == "." {
				refuse(spec, "a dot import of time hides the clock")
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			refuse(n, "no goroutines")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == clock && slices.Contains(clocks, n.Sel.Name) {
				refuse(n, "it takes the time as an argument, no time."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestArchitecture(t *testing.T) {
	found, err := violations(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}
