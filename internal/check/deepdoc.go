package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// deepFile has one row for each part of the deep tests, with the last result of the part.
const deepFile = "docs/deep.md"

const deepHead = `# Deep tests

` + "`make deep PART=NAME`" + ` runs a part of the tests that ` + "`make check`" + ` leaves out, and writes its row here.
For a change, run the parts that it touches. A release needs all parts green on its commit. A + after a commit means that there were uncommitted changes.

| part | commit | date | minutes | load | tests | verdict |
|---|---|---|---|---|---|---|
`

// deepRow returns a new row for a part that has just run.
func deepRow(name, commit string, r *report) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "green"
	for _, s := range r.stages {
		if s.err != nil {
			verdict = "red: " + s.name
		}
	}
	if r.passed == 0 {
		verdict = "red: no test ran"
	}
	tests := fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, r.bad, len(r.skipped))
	if r.overGoal > 0 {
		tests += fmt.Sprintf(", %d figures miss their goal", r.overGoal)
	}
	return fmt.Sprintf("| %s | %s | %s | %.0f | %s | %s | %s |",
		name, commit, time.Now().Format(time.DateOnly), time.Since(r.start).Minutes(), loadAverage(), tests, verdict)
}

// Some rows are about parts whose names begin with the prefix. deepCommit returns the
// commit in the oldest of these rows. The function removes the + that marks a changed
// tree. If there is no such row, the function returns an empty string.
func deepCommit(path, prefix string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	commit, oldest := "", ""
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| "+prefix) || len(cells) < 3 {
			continue
		}
		if oldest == "" || cells[2] < oldest {
			commit, oldest = strings.TrimSuffix(cells[1], "+"), cells[2]
		}
	}
	return commit, nil
}

// writeDeep writes a row into the file. The row replaces the part's previous row. The
// rows are sorted.
func writeDeep(path, row string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	name, _, _ := strings.Cut(row, " | ")
	rows := []string{row}
	tail := ""
	if _, table, ok := strings.Cut(string(old), "|---|---|---|---|---|---|---|\n"); ok {
		for line := range strings.Lines(table) {
			switch line = strings.TrimSuffix(line, "\n"); {
			case tail != "" || !strings.HasPrefix(line, "| "):
				tail += line + "\n"
			case !strings.HasPrefix(line, name+" | "):
				rows = append(rows, line)
			}
		}
	}
	slices.Sort(rows)
	return os.WriteFile(path, []byte(deepHead+strings.Join(rows, "\n")+"\n"+tail), 0o644)
}
