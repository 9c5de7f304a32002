package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// recipe is part of every digest: it is raised when the way in which bases are
// built changes, so that no cached base of the old way is used.
const recipe = 4

// Releases are the Debian releases of which hosts can be made, the default
// first. The comment is Puppet's version in each.
var Releases = []string{
	"trixie",   // 8.10
	"bookworm", // 7.23
}

// Definition says what a base holds. Equal content is the same base, whoever
// wrote it and in whatever order.
type Definition struct {
	Release     string   // Debian's code name; empty is the first of Releases
	Packages    []string // Debian packages to bake in, installed but not enabled
	Enabled     []string // units that stay enabled if their package enables them: shell patterns, without .service
	CachedFacts []string // facts that Facter answers from a cache that the bake fills
}

var packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Validate accepts known releases and well-formed package and fact names.
func (d Definition) Validate() error {
	if d.Release != "" && !slices.Contains(Releases, d.Release) {
		return tutti.Errorf(tutti.CodeInvalid, "release %q: known are %s", d.Release, strings.Join(Releases, ", "))
	}
	for _, p := range d.Packages {
		if !packageRE.MatchString(p) {
			return tutti.Errorf(tutti.CodeInvalid, "package %q: not the name of a Debian package", p)
		}
	}
	for _, u := range d.Enabled {
		if !unitRE.MatchString(u) {
			return tutti.Errorf(tutti.CodeInvalid, "unit %q: not the name or pattern of a unit", u)
		}
	}
	for _, f := range d.CachedFacts {
		if !factRE.MatchString(f) {
			return tutti.Errorf(tutti.CodeInvalid, "fact %q: not the name of a fact", f)
		}
	}
	return nil
}

var unitRE = regexp.MustCompile(`^[a-zA-Z0-9*?][a-zA-Z0-9*?@._-]*$`)

var factRE = regexp.MustCompile(`^[a-z][a-z0-9_ -]*$`)

// normal is d with its default filled in and its lists sorted without doubles.
func (d Definition) normal() Definition {
	if d.Release == "" {
		d.Release = Releases[0]
	}
	d.Packages = slices.Compact(slices.Sorted(slices.Values(d.Packages)))
	d.Enabled = slices.Compact(slices.Sorted(slices.Values(d.Enabled)))
	d.CachedFacts = slices.Compact(slices.Sorted(slices.Values(d.CachedFacts)))
	return d
}

// plain is the definition of the base that d's packages are baked into.
func (d Definition) plain() Definition { return Definition{Release: d.normal().Release} }

func (d Definition) isPlain() bool { return len(d.Packages) == 0 && len(d.CachedFacts) == 0 }

// Digest names the base: the same for equal content, another one as soon as a
// package, the release, the architecture or the recipe differs.
func (d Definition) Digest() tutti.Digest {
	n := d.normal()
	text := fmt.Sprintf("recipe %d\narch %s\nrelease %s\npackages %s\nenabled %s\nfacts %s\n",
		recipe, runtime.GOARCH, n.Release, strings.Join(n.Packages, " "), strings.Join(n.Enabled, " "), strings.Join(n.CachedFacts, ","))
	sum := sha256.Sum256([]byte(text))
	return tutti.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// dirName is readable for people who look into the cache: release and digest.
func (d Definition) dirName() string {
	return d.normal().Release + "-" + d.Digest().Hex()[:16]
}
