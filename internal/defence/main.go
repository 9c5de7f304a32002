// Command defence shows that tests can fail. For each defence of
// defences.yaml it takes the defence out (in a copy that the compiler sees by
// -overlay; no file of the tree changes), runs the test that must fail without
// it, and then the same test with the defence in place. It prints one row of a
// table for each, and fails if a test passes without its defence.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// defence is one way in which the tree keeps a promise.
type defence struct {
	Promise string `yaml:"promise"` // an invariant of the design, or an attack
	Out     string `yaml:"out"`     // what is taken out, in words
	File    string `yaml:"file"`
	Edits   []edit `yaml:"edits"`
	Package string `yaml:"package"` // ./internal/server, or a spec file of the Puppet module
	Test    string `yaml:"test"`    // a regular expression, as for go test -run; of a spec, an example's words
	Tags    string `yaml:"tags"`
}

// edit replaces what occurs once in the file.
type edit struct {
	Old string `yaml:"old"`
	New string `yaml:"new"`
}

func main() {
	only := flag.String("run", "", "only the defences whose promise or test fits this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, "internal/defence/defences.yaml", *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "defence:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, only string) error {
	fits, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := read(file)
	if err != nil {
		return err
	}
	fmt.Println("| invariant or attack | taken out | test | printed without it | prints with it |")
	fmt.Println("|---|---|---|---|---|")
	var errs []error
	for _, d := range all {
		if !fits.MatchString(d.Promise) && !fits.MatchString(d.Test) {
			continue
		}
		without, with, err := d.try(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): %w", d.Promise, d.Test, err))
			continue
		}
		fmt.Printf("| %s | %s | `%s` %s | %s | %s |\n", d.Promise, d.Out, d.Test, d.Package, without, with)
	}
	return errors.Join(errs...)
}

// read reads the list.
func read(file string) ([]defence, error) {
	raw, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	var all []defence
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// try runs the test without and with the defence.
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
		return "", "", fmt.Errorf("nothing that a test said:\n%s", out)
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

// mutant is the file without the defence.
func (d defence) mutant() (string, error) {
	raw, err := os.ReadFile(filepath.Clean(d.File))
	if err != nil {
		return "", err
	}
	source := string(raw)
	for _, e := range d.Edits {
		if n := strings.Count(source, e.Old); n != 1 {
			return "", fmt.Errorf("%s has the defence %d times, want once: %q", d.File, n, e.Old)
		}
		source = strings.Replace(source, e.Old, e.New, 1)
	}
	return source, nil
}

// overlay writes the file without the defence and what tells the compiler.
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

// test runs the test and returns what it printed, and whether it failed.
func (d defence) test(ctx context.Context, more ...string) (string, bool) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-timeout=300s", "-run="+d.Test, "-tags="+d.Tags, d.Package)
	// By the environment, so that a program that a test builds is without it, too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.Join(more, " "))
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// diffRE is the heading of a difference, changeRE its first line that tells one.
var (
	diffRE   = regexp.MustCompile(`-\w+ \+\w+\)?:?$`)
	changeRE = regexp.MustCompile(`(?m)^[\s\x{a0}]*([-+])[\s\x{a0}]+(\S.*)$`)
)

var saidRE = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.+)$|^(panic: .+)$|^\s+(FAIL: .+)$`)

// complaint is the first thing that a failing test said, in one line. A build
// that failed has none: that is no proof.
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

// quoted is what was said, as a cell of the table.
func quoted(said string) string {
	if cut := 160; len(said) > cut {
		said = said[:cut] + " …"
	}
	return "`" + strings.NewReplacer("|", "/", "`", "'").Replace(said) + "`"
}

// verdict is the last line of a test that passed.
func verdict(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last, _, _ := strings.Cut(lines[len(lines)-1], "\t") // of go test: before the package and the time
	return quoted(strings.TrimSpace(last))
}
