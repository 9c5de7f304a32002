// Package release reads docs/releases.md, which is the table of all releases. The package also
// builds the program of a release from its commit. Tests with the programs of several releases use
// this package. The tests cannot use tags, because a clone of the repository may have none.
package release

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Release is one row of the table.
type Release struct {
	Version string // MAJOR.MINOR.PATCH
	Date    string // YYYY-MM-DD
	Commit  string // the full hash of the commit
}

var rowRE = regexp.MustCompile(`^\| (\d+\.\d+\.\d+) \| (\d{4}-\d\d-\d\d) \| ([0-9a-f]{40}) \|$`)

// Read returns the releases that the repository at root lists, the newest one first. Read
// returns an error if the table has no releases, a malformed row, or another order.
func Read(root string) ([]Release, error) {
	file, err := os.Open(filepath.Join(root, "docs", "releases.md"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Release
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| version ") {
			continue
		}
		m := rowRE.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("docs/releases.md:%d: want | MAJOR.MINOR.PATCH | YYYY-MM-DD | the whole commit |, not %q", n, line)
		}
		if len(all) > 0 && !Before(m[1], all[len(all)-1].Version) {
			return nil, fmt.Errorf("docs/releases.md:%d: %s stands below %s; the newest release stands first", n, m[1], all[len(all)-1].Version)
		}
		all = append(all, Release{Version: m[1], Date: m[2], Commit: m[3]})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("docs/releases.md lists no release")
	}
	return all, nil
}

// Before reports whether version a is older than b. Both are MAJOR.MINOR.PATCH.
func Before(a, b string) bool {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, _ := strconv.Atoi(x) // the pattern of the table allows only digits
		n, _ := strconv.Atoi(y)
		return cmp.Compare(m, n)
	}) < 0
}
