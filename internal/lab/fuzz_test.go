package lab

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// FuzzSpec checks that a lab file is either refused or safe. The error of a refusal is one line
// with the place. In a safe file, all hosts, paths and packages are safe as arguments of commands.
func FuzzSpec(f *testing.F) {
	for _, text := range []string{
		"lab: swift\ndomain: swift.test\nmirror: http://mirror.test/debian\nrelease: trixie\npackages: [curl]\nenabled: [ssh]\ncached_facts: [a]\nbinds: [./code:/code, /a:/b]\nhosts:\n  proxy-01: {aliases: [api], release: bookworm, packages: [nginx]}\n  storage-01:\n",
		"lab: x\nhosts: [a, b, a.b.c]\n", "lab: x\nhosts: &h [*h]\n", "lab: x\nhosts: {a: {aliases: [a]}}\nbinds: [a]\n", "", "lab: [\n",
	} {
		f.Add([]byte(text))
	}
	place := regexp.MustCompile(`^lab\.yaml:([1-9][0-9]*:)? ?.`)
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := parseSpec("lab.yaml", "/dir", text)
		if err != nil {
			if tutti.CodeOf(err) != tutti.CodeInvalid || !place.MatchString(err.Error()) || len(err.Error()) > tutti.MaxErrorText {
				t.Errorf("code %q: %.300v", tutti.CodeOf(err), err)
			}
			if !cmp.Equal(spec, Spec{}) {
				t.Errorf("refused, and yet %+v", spec)
			}
			return
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("accepted: %v", err)
		}
		for _, b := range spec.Binds {
			if !strings.HasPrefix(b.Source, "/") || !strings.HasPrefix(b.Destination, "/") || strings.ContainsAny(b.Source+b.Destination, "\x00\n") {
				t.Errorf("accepted the bind %+v", b)
			}
		}
		for _, h := range spec.Hosts {
			for _, name := range append(spec.names(h), spec.definition(h).Packages...) {
				if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\n\x00/;$`") {
					t.Errorf("accepted the name %q", name)
				}
			}
		}
	})
}
