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

// recipe is part of every digest. It is raised when the way to build bases changes, so that cached bases of the old way
// are not used.
const recipe = 4

// Releases are the Debian releases that hosts can have, the default first. The comment is Puppet's version in each.
var Releases = []string{
	"trixie",   // 8.10
	"bookworm", // 7.23
}

// Definition says what a base holds. Equal content is the same base, in whatever order it was written.
type Definition struct {
	Release     string      // Debian's code name; empty is the first of Releases
	Packages    []string    // Debian packages to bake in, installed but not enabled
	Enabled     []string    // units that stay enabled if their package enables them: shell patterns, without .service
	CachedFacts []string    // facts that Facter answers from a cache that the bake fills
	Preparation Preparation // what a host did before it became the base
}

// Preparation turns a host into a base. The host boots once on the base of the same definition without the Preparation,
// runs the script, and is stopped. The zero value means no preparation.
type Preparation struct {
	Script string   // for sh, run by root in /
	Names  []string // of the host in its lab: the full one, the short one, then aliases
}

// maxScript is the greatest length of a script in bytes. The kernel passes no longer argument.
const maxScript = 64 << 10

// Validate accepts an empty script, or one that can be run.
func (p Preparation) Validate() error {
	switch {
	case strings.Contains(p.Script, "\x00"):
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host contains a zero byte: it must be text")
	case len(p.Script) > maxScript:
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host has %d bytes: at most %d are possible", len(p.Script), maxScript)
	case p.Script != "" && len(p.Names) < 2:
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host needs the host's full and short name: it has %q", p.Names)
	}
	return nil
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
	return d.Preparation.Validate()
}

var unitRE = regexp.MustCompile(`^[a-zA-Z0-9*?][a-zA-Z0-9*?@._-]*$`)

var factRE = regexp.MustCompile(`^[a-z][a-z0-9_ -]*$`)

// normal is d with its default filled in and with sorted lists without duplicates.
func (d Definition) normal() Definition {
	if d.Release == "" {
		d.Release = Releases[0]
	}
	d.Packages = slices.Compact(slices.Sorted(slices.Values(d.Packages)))
	d.Enabled = slices.Compact(slices.Sorted(slices.Values(d.Enabled)))
	d.CachedFacts = slices.Compact(slices.Sorted(slices.Values(d.CachedFacts)))
	return d
}

// parent is the definition of the base from which this one is made. The plain base of a release comes first, then its
// packages, then a preparation. The plain base has no parent.
func (d Definition) parent() (parent Definition, ok bool) {
	d = d.normal()
	switch {
	case d.Preparation.Script != "":
		d.Preparation = Preparation{}
		return d, true
	case len(d.Packages) > 0 || len(d.CachedFacts) > 0:
		return Definition{Release: d.Release}, true
	}
	return Definition{}, false
}

// Digest names the base. It is the same for equal content, and differs if a package, the release, the architecture, the
// preparation or the recipe differs.
func (d Definition) Digest() tutti.Digest {
	n := d.normal()
	text := fmt.Sprintf("recipe %d\narch %s\nrelease %s\npackages %s\nenabled %s\nfacts %s\n",
		recipe, runtime.GOARCH, n.Release, strings.Join(n.Packages, " "), strings.Join(n.Enabled, " "), strings.Join(n.CachedFacts, ","))
	if p := n.Preparation; p.Script != "" {
		parent, _ := n.parent()
		text = fmt.Sprintf("recipe %d\nparent %s\nhost %s\nscript\n%s", recipe, parent.Digest(), strings.Join(p.Names, " "), p.Script)
	}
	sum := sha256.Sum256([]byte(text))
	return tutti.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// dirName is a name that people can read in the cache: release and digest.
func (d Definition) dirName() string {
	return d.normal().Release + "-" + d.Digest().Hex()[:16]
}
