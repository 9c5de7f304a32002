package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	modulePath = "github.com/tutti-project/tutti"
	budgetFile = "e2e/budget.tsv"
)

// row is a line of the budget file. The row describes a test on lab hosts, with the
// places where this test runs. Other slow tests have a row, too.
type row struct {
	name    string   // path of the package in the module, a space, name of the test
	puppet8 []string // where the test runs with Puppet 8: in check, or in these parts of deep; empty: nowhere
	puppet7 []string // where the test runs with Puppet 7, in the same form
	area    string   // the test runs only if this area has changed (see affected.go)
	seconds float64  // how long the test took when it ran alone on a test machine
	twin    string   // if this test does not run in check: the test that replaces it there
}

// budget is the budget file.
type budget []row

var rowRE = regexp.MustCompile(`^(\S+ Test\S+)\t(\S+)\t(\S+)\t(\S+)\t([0-9.]+)\t(\S.*)$`)

// readBudget reads the file. Columns are separated by tabs, and comments begin with #.
func readBudget(path string) (budget, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows budget
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := rowRE.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s:%d: want PACKAGE TEST, Puppet 8, Puppet 7, area, seconds and twin, with tabs between: %q", path, i+1, line)
		}
		seconds, err := strconv.ParseFloat(m[5], 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		if slices.ContainsFunc(rows, func(r row) bool { return r.name == m[1] }) {
			return nil, fmt.Errorf("%s:%d: %s has a row already", path, i+1, m[1])
		}
		rows = append(rows, row{name: m[1], puppet8: places(m[2]), puppet7: places(m[3]), area: m[4], seconds: seconds, twin: m[6]})
	}
	return rows, nil
}

// The function `places` returns the words of a column, and nothing for the column `-`.
func places(column string) []string {
	if column == "-" {
		return nil
	}
	return strings.Split(column, ",")
}

// The method `of` returns the time in a test's row as text for people.
func (b budget) of(t testResult) string {
	i := slices.IndexFunc(b, func(r row) bool { return r.name == t.name })
	if i < 0 {
		return "no row"
	}
	return fmt.Sprintf("%.0f s", b[i].seconds)
}

// The method `tests` returns the tests of a package for which the function `want`
// returns true, as a pattern for go test -run. If the function returns true for no
// test, the method returns an empty string.
func (b budget) tests(pkg string, want func(row) bool) string {
	var names []string
	for _, r := range b {
		if of, test, _ := strings.Cut(r.name, " "); of == pkg && want(r) {
			names = append(names, test)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
