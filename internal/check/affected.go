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

// change is the difference between the tree and a commit. A nil change means that there is no
// commit to compare with. All files then count as changed.
type change struct {
	base  string
	files []string // paths from the top of the tree, including files that git does not track yet
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

// The method `touches` reports whether one of the paths has changed, or a file below one of the
// paths.
func (c *change) touches(paths ...string) bool {
	return c == nil || slices.ContainsFunc(c.files, func(file string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") })
	})
}

// The paths in `program` are the sources of the binary. If one of these files changes, tests on
// hosts may have other results.
var program = []string{"cmd", "internal", "puppet", "deploy", "go.mod", "go.sum"}

// The map `areas` contains, for each area of tests on hosts, the files that these tests use. If
// one of these files or a file of e2e has changed, the tests of the area run.
var areas = map[string][]string{
	"fleet":        program,
	"services":     append([]string{"examples/swift", "examples/web", "examples/compute"}, program...),
	"puppetserver": append([]string{"examples/swift"}, program...),
	"lab":          {"internal/lab"},
}

// The binary does not contain the packages in notOnHosts, so they cannot change the results of the
// tests on hosts.
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

// The method `keep` removes the stages that have nothing to test after this change.
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

// touchesPackage reports whether the tests of a package must run. They must run if the package,
// its tests, or a package that they need has changed. A changed file belongs to the package in the
// same folder, or in the nearest folder above. If a file that belongs to no package has changed,
// all packages count as changed.
func (c *change) touchesPackage(all packages, importPath string) bool {
	if c == nil {
		return true
	}
	return slices.ContainsFunc(c.files, func(file string) bool {
		if strings.HasSuffix(file, ".md") {
			return importPath == modulePath+"/internal" // the package internal tests the documents
		}
		owner := all.owner(file)
		return owner == "" || owner == importPath || slices.Contains(all.dependencies(importPath), owner)
	})
}

// goPackage is the output of go list for one package.
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

// testsWith reports whether the package's tests import a path.
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

// dependencies returns the packages of this module that a package and its tests need.
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

// owner returns the package in the folder of a file or in the nearest folder above. The
// root package owns only its own Go files.
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

// The method `concurrent` returns the packages in whose tests the race detector can find
// something. These packages or their tests start a goroutine, or they need a package of this
// module that starts a goroutine.
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

// startsGoroutines looks for a go statement and for calls that start a goroutine. These calls are
// the method Go of a group, and the method Parallel of a test.
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

// The function `output` returns the output of a command.
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
