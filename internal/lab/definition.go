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

// The constant `recipe` is a part of every digest. Increase it when you change how bases are built.
// Then bases that are already in the cache are not used any more.
const recipe = 4

// Releases are the Debian releases that hosts can have. The first release is the default. The comments name Puppet's
// version in each release.
var Releases = []string{
	"trixie",   // 8.10
	"bookworm", // 7.23
}

// Definition describes a base. Definitions with the same content describe the same base, even if the content is in a
// different order.
type Definition struct {
	Release  string   // Debian's code name. If Release is empty, the first of Releases is used
	Packages []string // Debian packages that are installed in the base but not enabled
	// shell patterns, without .service, of units that stay enabled if their package enables them
	Enabled     []string
	CachedFacts []string    // facts that Facter reads from a cache. Building the base fills the cache
	Preparation Preparation // a script that a host runs before it becomes the base
}

// Preparation is a script by which a host becomes a base. The host boots on the base with the same definition but
// without a Preparation. Then the host runs the script and is stopped. The zero value means that there is no
// preparation.
type Preparation struct {
	Script string   // for sh, as root in the directory /
	Names  []string // names of the host in its lab, first the full one, then the short one, then aliases
}

// maxScript is the largest size of a script, in bytes. The kernel refuses a longer argument of a program.
const maxScript = 64 << 10

// Validate returns an error if the script is not empty and cannot be run.
func (p Preparation) Validate() error {
	switch {
	case strings.Contains(p.Script, "\x00"):
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host contains a zero byte: it must be text")
	case len(p.Script) > maxScript:
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host has %d bytes, but may have at most %d", len(p.Script), maxScript)
	case p.Script != "" && len(p.Names) < 2:
		return tutti.Errorf(tutti.CodeInvalid, "the script that prepares a host needs the host's full and short name: it has %q", p.Names)
	}
	return nil
}

var packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Validate returns an error for an unknown release, or for a malformed name of a package or a fact.
func (d Definition) Validate() error {
	if d.Release != "" && !slices.Contains(Releases, d.Release) {
		return tutti.Errorf(tutti.CodeInvalid, "release %q is unknown: known releases are %s", d.Release, strings.Join(Releases, ", "))
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

// The method `normal` returns d with its default release, and with sorted lists without duplicates.
func (d Definition) normal() Definition {
	if d.Release == "" {
		d.Release = Releases[0]
	}
	d.Packages = slices.Compact(slices.Sorted(slices.Values(d.Packages)))
	d.Enabled = slices.Compact(slices.Sorted(slices.Values(d.Enabled)))
	d.CachedFacts = slices.Compact(slices.Sorted(slices.Values(d.CachedFacts)))
	return d
}

// The method `parent` returns the definition of the base from which this base is built. There are up to three levels
// of bases. The first is the plain base of a release, the second adds packages, and the third adds a preparation. The
// plain base has no parent.
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

// Digest names the base. Digest is equal for equal content. Digest is different if a package, the release, the
// architecture, the preparation or the recipe is different.
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

// dirName returns the base's directory name, which people can read. The name consists of release and digest.
func (d Definition) dirName() string {
	return d.normal().Release + "-" + d.Digest().Hex()[:16]
}
