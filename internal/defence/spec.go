package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// module is the directory of the Puppet module. The defences of the module are in Ruby, and its
// tests are specs.
const module = "puppet"

// isSpec reports whether the row's test is an example in a spec file.
func (d defence) isSpec() bool { return strings.HasSuffix(d.Package, "_spec.rb") }

// warmPrefix is the beginning of the names of examples that come from the table warmRows.
const (
	warmPrefix = "is as cold: "
	warmRows   = module + "/spec/support/warm_rows.rb"
)

// specFiles returns the files that contain the row's example.
func (d defence) specFiles() []string {
	if strings.HasPrefix(d.Test, warmPrefix) {
		return []string{d.Package, warmRows}
	}
	return []string{d.Package}
}

// The method `spec` runs the example without the defence, in a copy of the module.
func (d defence) spec(ctx context.Context, dir string) (string, bool, error) {
	mutant, err := d.mutant()
	if err != nil {
		return "", false, err
	}
	if err := os.CopyFS(filepath.Join(dir, module), os.DirFS(module)); err != nil {
		return "", false, err
	}
	if err := os.WriteFile(filepath.Join(dir, d.File), []byte(mutant), 0o600); err != nil {
		return "", false, err
	}
	out, failed := d.example(ctx, dir)
	return out, failed, nil
}

const exampleTimeout = 5 * time.Minute

// The method `example` runs the example in a tree, and returns its output and whether it failed.
func (d defence) example(ctx context.Context, root string) (string, bool) {
	file, err := filepath.Rel(module, d.Package)
	if err != nil {
		return err.Error(), true
	}
	ctx, cancel := context.WithTimeout(ctx, exampleTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "rspec", "--no-color", "--example", d.Test, file)
	cmd.Dir = filepath.Join(root, module)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil { // rspec did not start, because it is not installed
		return err.Error(), true
	}
	return string(out), err != nil || strings.Contains(string(out), "0 examples")
}

// expectedRE matches the failing line, and the text of the expectation or error below it.
var expectedRE = regexp.MustCompile(`Failure/Error:\s*(\S.*)(?s:.*?)\n[ \t]*\n\s*(\S.*)`)

// The function `objection` returns the first message of a failing example, in one line. If a file does not load, the
// result is empty, because such a failure proves nothing.
func objection(out string) string {
	m := expectedRE.FindStringSubmatch(out)
	switch {
	case m == nil:
		return ""
	case strings.HasPrefix(m[2], "== "): // the message is only the output of the run, so use the expectation
		return quoted(m[1])
	}
	return quoted(m[2])
}
