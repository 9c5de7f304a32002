package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// kinds are the headings of a release, in their order.
var kinds = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// A fragment describes one change that users can notice. Each file of changelog/unreleased
// contains one fragment.
type fragment struct {
	file string
	kind string // one of kinds
	text string // without the kind and without the final line break
}

const (
	defaultKind = "Changed"
	maxColumns  = 158 // docs/style.md allows 160, but a release indents the lines by two
	maxLines    = 6
)

var (
	nameRE = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*\.md$`)
	kindRE = regexp.MustCompile(`^([A-Z][a-z]+): `)
)

// The function `read` reads all fragments of a directory, sorted by name. The error names every
// invalid file.
func read(dir string) ([]fragment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // git does not keep the directory when a release has emptied it
		return nil, err
	}
	var fragments []fragment
	var errs []error
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		raw, err := os.ReadFile(filepath.Clean(file))
		if err == nil {
			var f fragment
			f, err = parse(e.Name(), string(raw))
			f.file = file
			fragments = append(fragments, f)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (changelog/README.md)", file, err))
		}
	}
	return fragments, errors.Join(errs...)
}

// parse reads one file. If the text begins with the name of a kind and a colon, the fragment is
// of that kind. Otherwise the fragment is of the default kind.
func parse(name, raw string) (fragment, error) {
	f := fragment{kind: defaultKind, text: strings.TrimSuffix(raw, "\n")}
	if m := kindRE.FindStringSubmatch(f.text); m != nil && slices.Contains(kinds, m[1]) {
		f.kind, f.text = m[1], strings.TrimPrefix(f.text, m[0])
	}
	switch {
	case !nameRE.MatchString(name):
		return f, errors.New("the name must consist of lower-case words, joined by -, and end in .md")
	case f.text == "" || strings.TrimSpace(f.text) != f.text || strings.Contains(f.text, "\n\n"):
		return f, errors.New("the text must be one paragraph, without an empty line and without a space at either end")
	case strings.HasPrefix(f.text, "- ") || strings.HasPrefix(f.text, "* ") || strings.HasPrefix(f.text, "#"):
		return f, errors.New("the text must have no list mark and no heading, because the release adds them")
	case !strings.HasSuffix(f.text, ".") && !strings.HasSuffix(f.text, ".)"):
		return f, errors.New("its last sentence has no full stop")
	case strings.Count(f.text, "\n") >= maxLines:
		return f, fmt.Errorf("the text has more than %d lines: the rest belongs in a document", maxLines)
	}
	for line := range strings.SplitSeq(raw, "\n") {
		if utf8.RuneCountInString(line) > maxColumns {
			return f, fmt.Errorf("a line has more than %d characters", maxColumns)
		}
	}
	return f, nil
}
