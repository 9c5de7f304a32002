package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rowsFile is the name of the files with the rows. There is one file for each package and one for
// the Puppet module.
const rowsFile = "defences.yaml"

// The type `defence` is one way in which the tree keeps a promise.
type defence struct {
	Promise string `yaml:"promise"` // an invariant of the design, or an attack
	Out     string `yaml:"out"`     // the removed defence, in words
	File    string `yaml:"file"`
	Edits   []edit `yaml:"edits"`
	Package string `yaml:"package"` // Package is for example ./internal/server, or a spec file of the Puppet module.
	// Test is a regular expression, as for go test -run. For a spec, Test has the words of an
	// example.
	Test string `yaml:"test"`
	Tags string `yaml:"tags"`

	from string // the file that contains the row
}

// An `edit` replaces a text that occurs once in the file.
type edit struct {
	Old string `yaml:"old"`
	New string `yaml:"new"`
}

// The function `read` returns the rows of a tree, in the order of their files' paths.
func read(tree fs.FS) ([]defence, error) {
	var all []defence
	var errs []error
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != ".":
			return fs.SkipDir
		case d.IsDir() || d.Name() != rowsFile:
			return nil
		}
		raw, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		rows, err := parse(raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for i := range rows {
			rows[i].from = name
		}
		all = append(all, rows...)
		return nil
	})
	return all, errors.Join(append(errs, err)...)
}

func parse(raw []byte) ([]defence, error) {
	var rows []defence
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	err := dec.Decode(&rows)
	return rows, err
}

// The method `mutant` returns the content of the file without the defence.
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

// The method `key` returns the row as a text. Two equal rows have the same key.
func (d defence) key() string {
	d.from = ""
	return fmt.Sprintf("%+v", d)
}

// testFiles returns the files that contain the row's test.
func (d defence) testFiles() []string {
	if d.isSpec() {
		return d.specFiles()
	}
	var found []string
	for _, name := range d.testNames() {
		if file := functionFile(d.Package, name); file != "" {
			found = append(found, file)
		}
	}
	if script, ok := strings.CutPrefix(d.Test, "TestScripts/"); ok {
		found = append(found, "script/cli/"+script+".txtar")
	}
	return found
}

// testNames returns the names of the test functions in the row, without subtests.
func (d defence) testNames() []string {
	var names []string
	for name := range strings.SplitSeq(d.Test, "|") {
		name, _, _ = strings.Cut(name, "/")
		names = append(names, strings.TrimSuffix(name, "$"))
	}
	return names
}

// functionFile returns the test file in a directory that declares the function. functionFile
// returns "" if there is no such file.
func functionFile(dir, name string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go")) // the pattern is well-formed
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Clean(file))
		if err == nil && strings.Contains(string(raw), "\nfunc "+name+"(") {
			return file
		}
	}
	return ""
}
