package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// change is what differs from a commit. A nil change touches everything.
type change struct {
	base  string
	files []string // from the top of the tree, with those that git does not track yet
}

func changesSince(ctx context.Context, base string) (*change, error) {
	changed, err := output(ctx, "git", "diff", "--name-only", base, "--")
	if err != nil {
		return nil, fmt.Errorf("BASE=%s: %w", base, err)
	}
	added, err := output(ctx, "git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return &change{base: base, files: strings.Fields(changed + added)}, nil
}

// touches tells whether a changed file is one of these or below one of these.
func (c *change) touches(paths ...string) bool {
	return c == nil || slices.ContainsFunc(c.files, func(file string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") })
	})
}

// program is what the binary is made of. Any of it may change what happens on a host.
var program = []string{"cmd", "internal", "puppet", "deploy", "go.mod", "go.sum"}

// areas are what a change must touch to run the tests of an area, besides the test
// files and the lab.
var areas = map[string][]string{
	"fleet":        program,
	"services":     append([]string{"examples/swift", "examples/web", "examples/compute"}, program...),
	"puppetserver": append([]string{"examples/swift"}, program...),
	"lab":          {"internal/lab"},
}

// notOnHosts are packages that no host runs.
var notOnHosts = []string{"internal/check", "internal/bench", "internal/defence", "internal/memory", "internal/hostile", "internal/release", "internal/testdata"}

func (c *change) touchesArea(area string) bool {
	if c == nil {
		return true
	}
	relevant := &change{base: c.base}
	for _, file := range c.files {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, ".md") && !(&change{files: []string{file}}).touches(notOnHosts...) {
			relevant.files = append(relevant.files, file)
		}
	}
	return c.touches("e2e") || relevant.touches(areas[area]...) || area == "lab" && c.touches("internal/lab")
}

// keep takes out the stages in which nothing is left to do.
func (c *change) keep(all []stage) []stage {
	if c == nil {
		return all
	}
	hosts := c.touchesArea("fleet") || c.touchesArea("services") || c.touchesArea("puppetserver")
	module := c.touches("puppet", "script/module-specs")
	wanted := map[string]bool{
		"build": hosts, "e2e8": hosts, "e2e7": hosts,
		"lint": true, "go": true, "defence": true,
		"specs7": module, "specs8": module,
	}
	return slices.DeleteFunc(all, func(s stage) bool { return !wanted[s.name] })
}

// touchesPackage tells whether a package, its tests or something that either
// imports has changed. A changed file belongs to the package in whose folder, or
// nearest above, it is; what is in none belongs to all.
func (c *change) touchesPackage(all packages, importPath string) bool {
	if c == nil {
		return true
	}
	return slices.ContainsFunc(c.files, func(file string) bool {
		if strings.HasSuffix(file, ".md") {
			return importPath == modulePath+"/internal" // which tests what documents say
		}
		owner := all.owner(file)
		return owner == "" || owner == importPath || slices.Contains(all.dependencies(importPath), owner)
	})
}

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath, Dir           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Imports                   []string
	TestImports, XTestImports []string
	Deps                      []string
}

type packages []goPackage

func listPackages(ctx context.Context) (packages, error) {
	text, err := output(ctx, "go", "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps", "./...")
	if err != nil {
		return nil, err
	}
	var all packages
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// testsWith tells whether the package's tests import a path.
func (p goPackage) testsWith(path string) bool {
	return slices.Contains(p.TestImports, path) || slices.Contains(p.XTestImports, path)
}

func (all packages) find(importPath string) *goPackage {
	i := slices.IndexFunc(all, func(p goPackage) bool { return p.ImportPath == importPath })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// dependencies are the packages of this module that a package and its tests need.
func (all packages) dependencies(importPath string) []string {
	p := all.find(importPath)
	if p == nil {
		return nil
	}
	needed := slices.Clone(p.Deps)
	for _, i := range slices.Concat(p.TestImports, p.XTestImports) {
		needed = append(needed, i)
		if d := all.find(i); d != nil {
			needed = append(needed, d.Deps...)
		}
	}
	slices.Sort(needed)
	return slices.DeleteFunc(slices.Compact(needed), func(i string) bool { return all.find(i) == nil })
}

// owner is the package in whose folder, or nearest above, a file is. The root package
// owns only its own Go files.
func (all packages) owner(file string) string {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if p := all.find(modulePath + "/" + dir); p != nil {
			return p.ImportPath
		}
	}
	if path.Dir(file) == "." && path.Ext(file) == ".go" {
		return modulePath
	}
	return ""
}

// concurrent are the packages in whose tests the race detector can find something:
// they, or something of this module that they or their tests need, start a goroutine.
func (all packages) concurrent() (map[string]bool, error) {
	starts := map[string]bool{}
	for _, p := range all {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			found, err := startsGoroutines(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			starts[p.ImportPath] = starts[p.ImportPath] || found
		}
	}
	out := map[string]bool{}
	for _, p := range all {
		out[p.ImportPath] = starts[p.ImportPath] || slices.ContainsFunc(all.dependencies(p.ImportPath), func(d string) bool { return starts[d] })
	}
	return out, nil
}

// startsGoroutines looks for a go statement, and for calls that start one: Go of a
// group, Parallel of a test.
func startsGoroutines(file string) (bool, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	found := false
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "Go" || n.Sel.Name == "Parallel"
		}
		return !found
	})
	return found, nil
}

// output is what a command prints.
func output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
