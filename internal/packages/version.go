package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	describedRE = regexp.MustCompile(`^(.+)-([0-9]+)-(g[0-9a-f]+)$`)
	packageRE   = regexp.MustCompile(`^[0-9][0-9A-Za-z.+~]*$`)
)

// packageVersion returns a version for packages. The argument is the version of a release, or the output
// of git describe. A version of an rpm has no hyphen. dpkg and rpm both sort a tilde before the end of
// the version and a plus after it:
//
//	1.2.3           1.2.3
//	1.2.3-rc.1      1.2.3~rc.1      before 1.2.3
//	1.2.3-4-gabcdef 1.2.3+4.gabcdef after 1.2.3
//	abcdef          0~abcdef        before each release
func packageVersion(version string) (string, error) {
	v, dirty := strings.CutSuffix(programVersion(version), "-dirty")
	after := ""
	if m := describedRE.FindStringSubmatch(v); m != nil {
		v, after = m[1], "+"+m[2]+"."+m[3]
	}
	if number, _, ok := strings.Cut(v, "."); !ok || strings.Trim(number, "0123456789") != "" || number == "" {
		v = "0~" + v
	}
	release, candidate, ok := strings.Cut(v, "-")
	if ok {
		release += "~" + strings.ReplaceAll(candidate, "-", ".")
	}
	mapped := release + after
	switch {
	case dirty && after == "":
		mapped += "+0.dirty"
	case dirty:
		mapped += ".dirty"
	}
	if version == "" || !packageRE.MatchString(mapped) {
		return "", fmt.Errorf("version %q: write a version like 1.2.3 or 1.2.3-rc.1", version)
	}
	return mapped, nil
}

// programVersion returns the version that `tutti --version` prints.
func programVersion(version string) string { return strings.TrimPrefix(version, "v") }
