package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Spec describes the hosts of a lab and their content.
type Spec struct {
	Name       string // of the lab
	Domain     string // domain of the hosts. If Domain is empty, the domain is NAME.test
	Mirror     string // a Debian mirror. If Mirror is empty, the machine's apt configuration decides
	Definition        // base of the hosts that do not set their own
	Binds      []Bind // binds of paths of the outer machine into every host
	Hosts      []HostSpec
}

// HostSpec is one host of a Spec.
type HostSpec struct {
	Name     string   // a host name, or a full name with its own domain
	Aliases  []string // additional names by which other hosts know this host
	Release  string   // instead of the lab's
	Packages []string // in addition to the lab's packages
	// script that this host runs once to make its own base. If Prepare is empty, there is no script
	Prepare string
}

// These constants limit a lab, because a subnet has a limited number of addresses, and names on the
// outer machine have a limited length.
const (
	maxHosts   = 200
	maxLabName = 32
)

var (
	labNameRE  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	hostNameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

// ReadSpec reads the lab file at path. For a mistake in the file, ReadSpec returns one error with file, line and
// remedy. Relative paths in the file are relative to the file's directory.
func ReadSpec(path string) (Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, tutti.Wrap(tutti.CodeNotFound, err, "lab file")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Spec{}, err
	}
	return parseSpec(path, filepath.Dir(abs), text)
}

// Validate checks everything that can be checked on any machine.
func (s Spec) Validate() error {
	if err := validateLabName(s.Name); err != nil {
		return err
	}
	if s.Domain != "" && !hostNameRE.MatchString(s.Domain) {
		return tutti.Errorf(tutti.CodeInvalid, "domain %q: not a domain name", s.Domain)
	}
	if err := s.Definition.Validate(); err != nil {
		return err
	}
	if len(s.Hosts) == 0 || len(s.Hosts) > maxHosts {
		return tutti.Errorf(tutti.CodeInvalid, "lab %q has %d hosts, but must have from 1 to %d", s.Name, len(s.Hosts), maxHosts)
	}
	for _, b := range s.Binds {
		if err := b.Validate(); err != nil {
			return err
		}
	}
	taken := map[string]string{outerName: "the outer machine", serverName: "the outer machine"}
	for _, h := range s.Hosts {
		if err := s.validateHost(h, taken); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) validateHost(h HostSpec, taken map[string]string) error {
	if err := s.definition(h).Validate(); err != nil {
		return tutti.Wrap("", err, "host %q", h.Name)
	}
	for _, name := range append([]string{h.Name}, h.Aliases...) {
		if _, err := netip.ParseAddr(name); err == nil || !hostNameRE.MatchString(name) || len(name) > 253 {
			return tutti.Errorf(tutti.CodeInvalid, "host name %q: use only lower-case letters, digits and '-', in parts joined by '.'", name)
		}
		if of, ok := taken[name]; ok {
			return tutti.Errorf(tutti.CodeInvalid, "host name %q is already the name of %s", name, of)
		}
		taken[name] = "host " + h.Name
	}
	return nil
}

func validateLabName(name string) error {
	if !labNameRE.MatchString(name) || len(name) > maxLabName {
		return tutti.Errorf(tutti.CodeInvalid, "lab name %q: use only lower-case letters, digits and '-', begin with a letter, and use at most %d characters", name, maxLabName)
	}
	return nil
}

// The method `definition` returns the definition of a host's base.
func (s Spec) definition(h HostSpec) Definition {
	d := s.Definition
	d.Release = orDefault(h.Release, d.Release)
	d.Packages = slices.Concat(d.Packages, h.Packages)
	d.Preparation = Preparation{}
	if h.Prepare != "" {
		d.Preparation = Preparation{Script: h.Prepare, Names: s.names(h)}
	}
	return d.normal()
}

// The method `names` returns the names of a host in the order of /etc/hosts. The full name comes
// first.
func (s Spec) names(h HostSpec) []string {
	if strings.Contains(h.Name, ".") {
		short, _, _ := strings.Cut(h.Name, ".")
		return append([]string{h.Name, short}, h.Aliases...)
	}
	return append([]string{h.Name + "." + s.domain(), h.Name}, h.Aliases...)
}

func (s Spec) domain() string { return orDefault(s.Domain, s.Name+".test") }
