package control

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Module is one module of a Puppetfile.
type Module struct {
	Name string // as in the Puppetfile, for example puppetlabs/stdlib
	Dir  string // where the module is in the environment, for example modules/stdlib
	Line int    // in the Puppetfile

	// The module comes from a git repository if Git is set. Ref is a branch, a tag or a commit, as Kind says. If Kind is
	// kindBranch and the repository does not have Ref, Default is used.
	Git     string
	Ref     string
	Kind    refKind
	Default string

	Version string // of a forge's module, exact; empty for the latest version
	Local   bool   // the module is in the control repository
}

// refKind says what a Ref names. It decides whether the remote must be asked again.
type refKind string

const (
	kindAny    refKind = "ref" // a branch, a tag or a commit
	kindBranch refKind = "branch"
	kindTag    refKind = "tag"
	kindCommit refKind = "commit"
)

// Puppetfile is what a Puppetfile says.
type Puppetfile struct {
	Forge   string // the address in the file; empty if there is none
	Modules []Module
}

const (
	maxPuppetfile = 1 << 20
	maxModules    = 2000
)

// moduleRE matches the name of a module, with the owner or without it.
var moduleRE = regexp.MustCompile(`^(?:[A-Za-z0-9_]+[/-])?([a-z][a-z0-9_]*)$`)

// ParsePuppetfile reads a Puppetfile. It understands `forge`, `moduledir` and `mod` with constant arguments, which is what
// r10k's documentation shows. The parameter branch replaces :control_branch. An error is CodeInvalid, with the line.
func ParsePuppetfile(name string, source []byte, branch string) (Puppetfile, error) {
	if len(source) > maxPuppetfile {
		return Puppetfile{}, tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", name, len(source), maxPuppetfile)
	}
	calls, err := rubyCalls(name, string(source))
	if err != nil {
		return Puppetfile{}, err
	}
	out, dir := Puppetfile{}, "modules"
	for _, c := range calls {
		fail := func(format string, args ...any) error {
			return tutti.Errorf(tutti.CodeInvalid, "%s:%d: %s", name, c.line, fmt.Sprintf(format, args...))
		}
		switch {
		case c.name == "forge" && len(c.words) == 1 && len(c.options) == 0:
			out.Forge = c.words[0]
		case c.name == "moduledir" && len(c.words) == 1 && len(c.options) == 0:
			if dir, err = inside(c.words[0]); err != nil {
				return out, fail("moduledir: %s", err)
			}
		case c.name == "mod":
			m, err := module(c, dir, branch)
			if err != nil {
				return out, fail("%s", err)
			}
			if at := slices.IndexFunc(out.Modules, func(o Module) bool { return o.Dir == m.Dir }); at >= 0 {
				return out, fail("mod %q: its directory %s is that of the module in line %d", m.Name, m.Dir, out.Modules[at].Line)
			}
			if out.Modules = append(out.Modules, m); len(out.Modules) > maxModules {
				return out, fail("more than %d modules", maxModules)
			}
		default:
			return out, fail("%q is not understood: only forge, moduledir and mod with constant arguments are; run r10k and push its directory: tutti code push --environment NAME --path DIR", c.name)
		}
	}
	return out, nil
}

// inside cleans a directory of an environment, and refuses one that leads out of it.
func inside(dir string) (string, error) {
	clean := path.Clean(dir)
	if dir == "" || path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q is not a directory inside the environment", dir)
	}
	return clean, nil
}

// The function `module` reads the arguments of a `mod`.
func module(c call, dir, branch string) (Module, error) {
	if len(c.words) == 0 || len(c.words) > 2 {
		return Module{}, fmt.Errorf("mod: a name is needed, and at most a version")
	}
	m := Module{Name: c.words[0], Line: c.line}
	parts := moduleRE.FindStringSubmatch(m.Name)
	if parts == nil {
		return m, fmt.Errorf("mod %q: not the name of a module", m.Name)
	}
	if at, given := c.options["install_path"]; given {
		var err error
		if dir, err = inside(at); err != nil {
			return m, fmt.Errorf("mod %q: install_path: %w", m.Name, err)
		}
	}
	m.Dir = path.Join(dir, parts[1])
	kind := strings.TrimPrefix(c.options["type"], ":") // a text or a symbol
	kinds := map[string]refKind{"ref": kindAny, "branch": kindBranch, "tag": kindTag, "commit": kindCommit}
	for _, key := range slices.Sorted(maps.Keys(c.options)) {
		value := c.options[key]
		ref, isRef := kinds[key]
		switch {
		case key == "git":
			m.Git = value
		case isRef && m.Ref != "":
			return m, fmt.Errorf("mod %q: give one of :ref, :branch, :tag and :commit", m.Name)
		case isRef && value == ":control_branch":
			if branch == "" {
				return m, fmt.Errorf("mod %q: :control_branch, but a commit without a branch is deployed", m.Name)
			}
			m.Ref, m.Kind = branch, kindBranch
		case isRef:
			m.Ref, m.Kind = value, ref
		case key == "default_branch" || key == "default_branch_override":
			m.Default = cmp.Or(c.options["default_branch_override"], value)
		case key == "local":
			m.Local = value == "true"
		case key == "source" && kind == "git":
			if m.Git = value; c.options["git"] != "" {
				return m, fmt.Errorf("mod %q: give one of :git and :source", m.Name)
			}
		case key == "version":
			m.Version = value
		case key == "type", key == "install_path", key == "exclude_spec", key == "source" && kind == "forge": // r10k ignores the source of a forge's module, too
		default:
			return m, fmt.Errorf("mod %q: the option :%s is not understood", m.Name, key)
		}
	}
	switch kind {
	case "", "forge", "git":
	case "local":
		m.Local = true
	default:
		return m, fmt.Errorf("mod %q: modules of type %s are not supported", m.Name, kind)
	}
	if len(c.words) == 2 {
		m.Version = c.words[1]
	}
	if m.Version == ":latest" || m.Version == "latest" {
		m.Version = ""
	}
	if m.Git != "" && m.Ref == "" {
		m.Ref, m.Kind = cmp.Or(m.Version, m.Default), kindAny
		m.Version = ""
	}
	switch {
	case m.Git == "" && (m.Ref != "" || m.Default != ""):
		return m, fmt.Errorf("mod %q: a branch, tag or commit needs :git", m.Name)
	case m.Git == "" && !m.Local && m.Name == parts[1]:
		return m, fmt.Errorf("mod %q: a module of a forge has the name of its owner, like owner/%s", m.Name, m.Name)
	case m.Kind == kindCommit && !commitRE.MatchString(m.Ref):
		return m, fmt.Errorf("mod %q: commit %q: 7 to 40 hexadecimal digits", m.Name, m.Ref)
	case strings.HasPrefix(m.Ref, "-") || strings.ContainsAny(m.Ref, " ~^:?*[\\\x00"):
		return m, fmt.Errorf("mod %q: %q is not a branch, tag or commit", m.Name, m.Ref)
	}
	return m, nil
}

var commitRE = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
