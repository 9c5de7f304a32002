package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The method `try` runs the test twice: without and with the defence.
func (d defence) try(ctx context.Context) (without, with string, err error) {
	dir, err := os.MkdirTemp("", "tutti-defence-")
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out, failed, err := d.testWithout(ctx, dir)
	if err != nil {
		return "", "", err
	}
	if !failed {
		return "", "", errors.New("the test passes without the defence")
	}
	if without = d.complaint(out); without == "" {
		return "", "", fmt.Errorf("the failed test printed no message:\n%s", out)
	}
	if out, failed = d.testWith(ctx); failed {
		return "", "", fmt.Errorf("the test fails with the defence:\n%s", out)
	}
	return without, verdict(out), nil
}

func (d defence) testWithout(ctx context.Context, dir string) (string, bool, error) {
	if d.isSpec() {
		return d.spec(ctx, dir)
	}
	overlay, err := d.overlay(dir)
	if err != nil {
		return "", false, err
	}
	out, failed := d.test(ctx, "-overlay="+overlay)
	return out, failed, nil
}

func (d defence) testWith(ctx context.Context) (string, bool) {
	if d.isSpec() {
		return d.example(ctx, ".")
	}
	return d.test(ctx)
}

func (d defence) complaint(out string) string {
	if d.isSpec() {
		return objection(out)
	}
	return complaint(out)
}

// The method `overlay` writes the file without the defence, and the overlay file for the compiler.
func (d defence) overlay(dir string) (string, error) {
	source, err := d.mutant()
	if err != nil {
		return "", err
	}
	mutant := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutant, []byte(source), 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(d.File)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// The method `test` runs the test and returns its output and whether it failed.
func (d defence) test(ctx context.Context, more ...string) (string, bool) {
	// The cache of results is off, because it does not notice changes in a program that the test
	// builds.
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-timeout=300s", "-run="+d.Test, "-tags="+d.Tags, d.Package)
	// The flags are in the environment. So if the test builds a program, this program lacks the
	// defence, too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.Join(more, " "))
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// diffRE matches the heading of a difference. changeRE matches the first changed line below it.
var (
	diffRE   = regexp.MustCompile(`-\w+ \+\w+\)?:?$`)
	changeRE = regexp.MustCompile(`(?m)^[\s\x{a0}]*([-+])[\s\x{a0}]+(\S.*)$`)
)

var saidRE = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.+)$|^(panic: .+)$|^\s+(FAIL: .+)$`)

// The function `complaint` returns the first message of a failing test, in one line. If the build failed, the result
// is empty, because such a failure proves nothing.
func complaint(out string) string {
	if strings.Contains(out, "[build failed]") {
		return ""
	}
	at := saidRE.FindStringSubmatchIndex(out)
	if at == nil {
		return ""
	}
	m := saidRE.FindStringSubmatch(out)
	said := strings.TrimSpace(m[1] + m[2] + m[3])
	if change := changeRE.FindStringSubmatch(out[at[1]:]); change != nil && diffRE.MatchString(said) {
		said += " " + change[1] + change[2]
	}
	return quoted(said)
}

// The function `quoted` returns a message as a cell of the table.
func quoted(said string) string {
	if cut := 160; len(said) > cut {
		said = said[:cut] + " …"
	}
	return "`" + strings.NewReplacer("|", "/", "`", "'").Replace(said) + "`"
}

// The function `verdict` returns the last line of a test that passed.
func verdict(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last, _, _ := strings.Cut(lines[len(lines)-1], "\t") // go test writes this text before the package and the time
	return quoted(strings.TrimSpace(last))
}
