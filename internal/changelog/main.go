// Command changelog makes a release's section of CHANGELOG.md. The command joins the
// files of changelog/unreleased, inserts the section above the last release, and removes
// the files. If one of the files is invalid, the command changes nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	unreleased = "changelog/unreleased"
	changelog  = "CHANGELOG.md"
)

func main() {
	version := flag.String("version", "", "the release, like 0.2.0")
	date := flag.String("date", time.Now().UTC().Format(time.DateOnly), "its date")
	flag.Parse()
	if err := release(".", *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "changelog:", err)
		os.Exit(1)
	}
}

var versionRE = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9a-z.]+)?$`)

// The function `release` moves the fragments of the tree `root` into a new section of
// its CHANGELOG.md.
func release(root, version, date string) error {
	if !versionRE.MatchString(version) {
		return fmt.Errorf("version %q: write three numbers, like 0.2.0", version)
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return fmt.Errorf("date %q: write the date like 2026-11-23", date)
	}
	fragments, err := read(filepath.Join(root, unreleased))
	if err != nil {
		return err
	}
	if len(fragments) == 0 {
		return fmt.Errorf("%s has no files: nothing changed since the last release", unreleased)
	}
	file := filepath.Join(root, changelog)
	old, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err
	}
	text, err := insert(string(old), version, section(version, date, fragments))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	var errs []error
	for _, f := range fragments {
		errs = append(errs, os.Remove(f.file))
	}
	return errors.Join(errs...)
}

// The function `section` returns the text of a release. The text has a heading, and for
// each kind the changes in the order of their file names.
func section(version, date string, fragments []fragment) string {
	var text strings.Builder
	fmt.Fprintf(&text, "## [%s] - %s\n", version, date)
	for _, k := range kinds {
		heading := fmt.Sprintf("\n### %s\n", k)
		for _, f := range fragments {
			if f.kind == k {
				text.WriteString(heading + "- " + strings.ReplaceAll(f.text, "\n", "\n  ") + "\n")
				heading = ""
			}
		}
	}
	return text.String()
}

// insert puts a release's section above the last release.
func insert(old, version, section string) (string, error) {
	if strings.Contains(old, "## ["+version+"]") {
		return "", fmt.Errorf("%s has version %s already", changelog, version)
	}
	head, rest, found := strings.Cut(old, "## [Unreleased]\n")
	if !found {
		return "", fmt.Errorf("%s has no line %q", changelog, "## [Unreleased]")
	}
	about, releases, found := strings.Cut(rest, "\n## [")
	if found {
		releases = "\n## [" + releases
	}
	return head + "## [Unreleased]\n" + strings.TrimRight(about, "\n") + "\n\n" + section + releases, nil
}
