package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The type `choice` selects the rows to run. A row must match all of its fields.
type choice struct {
	run     string // run is a regular expression for promise, file or test. If run is empty, all rows match.
	changed string // changed is a git revision. If changed is empty, all rows match.
	part    string // K/N selects each Nth row, beginning with the Kth row
	most    int    // the largest number of rows to run, evenly spread; 0: all these rows run
}

// The method `of` returns the selected rows, in their order.
func (c choice) of(ctx context.Context, all []defence) ([]defence, error) {
	fits, err := regexp.Compile(c.run)
	if err != nil {
		return nil, err
	}
	k, n, err := c.share()
	if err != nil {
		return nil, err
	}
	hasChanged := func(defence) bool { return true }
	if c.changed != "" {
		if hasChanged, err = since(ctx, c.changed); err != nil {
			return nil, err
		}
	}
	var fitting, chosen []defence
	for _, d := range all {
		if (fits.MatchString(d.Promise) || fits.MatchString(d.File) || fits.MatchString(d.Test)) && hasChanged(d) {
			fitting = append(fitting, d)
		}
	}
	if len(fitting) == 0 && c.run != "" && c.changed == "" {
		return nil, fmt.Errorf("-run %q fits no promise, file or test", c.run)
	}
	for i := k - 1; i < len(fitting); i += n {
		chosen = append(chosen, fitting[i])
	}
	if c.most > 0 && len(chosen) > c.most {
		spread := make([]defence, c.most)
		for i := range spread {
			spread[i] = chosen[i*len(chosen)/c.most]
		}
		chosen = spread
	}
	return chosen, nil
}

// The method `share` reads the field `part`, which is written like 2/3. The rows of one package are adjacent and take
// about the same time. If each part consists of every Nth row, all parts take about the same time.
func (c choice) share() (k, n int, err error) {
	_, err = fmt.Sscanf(c.part+"\n", "%d/%d\n", &k, &n)
	if err != nil || k < 1 || k > n {
		return 0, 0, fmt.Errorf("-part %q: it is written like 2/3", c.part)
	}
	return k, n, nil
}

// The function `since` returns a function that reports whether a row is new or has changed. It compares the rows
// with the last common commit of the revision and HEAD. A row also counts as changed if its file or the file of its
// test has changed. Uncommitted changes count, too.
func since(ctx context.Context, revision string) (func(defence) bool, error) {
	base, err := git(ctx, "merge-base", revision, "HEAD")
	if err != nil {
		return nil, err
	}
	base = strings.TrimSpace(base)
	files, err := changedFiles(ctx, base)
	if err != nil {
		return nil, err
	}
	old, err := rowsAt(ctx, base)
	if err != nil {
		return nil, err
	}
	return func(d defence) bool {
		if !old[d.key()] || files[filepath.ToSlash(filepath.Clean(d.File))] {
			return true
		}
		for _, file := range d.testFiles() {
			if files[filepath.ToSlash(filepath.Clean(file))] {
				return true
			}
		}
		return false
	}, nil
}

func changedFiles(ctx context.Context, base string) (map[string]bool, error) {
	tracked, err := git(ctx, "diff", "--name-only", "--no-renames", base)
	if err != nil {
		return nil, err
	}
	untracked, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	files := map[string]bool{}
	for _, file := range strings.Fields(tracked + untracked) {
		files[file] = true
	}
	return files, err
}

// rowsAt returns the keys of the rows in a revision.
func rowsAt(ctx context.Context, revision string) (map[string]bool, error) {
	names, err := git(ctx, "ls-tree", "-r", "--name-only", revision)
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for _, name := range strings.Fields(names) {
		if filepath.Base(name) != rowsFile {
			continue
		}
		raw, err := git(ctx, "show", revision+":"+name)
		if err != nil {
			return nil, err
		}
		rows, err := parse([]byte(raw))
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, revision, err)
		}
		for _, d := range rows {
			keys[d.key()] = true
		}
	}
	return keys, nil
}

// The function `git` runs the command git and returns its output.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
