package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-project/tutti"
)

func TestDefinitionDigest(t *testing.T) {
	base := Definition{Release: "trixie", Packages: []string{"puppet-agent", "rsync"}, CachedFacts: []string{"augeas"}}
	tests := map[string]struct {
		reason string
		other  Definition
		same   bool
	}{
		"order":    {"the order of packages changes nothing in a base", Definition{Release: "trixie", Packages: []string{"rsync", "puppet-agent"}, CachedFacts: []string{"augeas"}}, true},
		"doubled":  {"a package named twice is installed once", Definition{Release: "trixie", Packages: []string{"rsync", "puppet-agent", "rsync"}, CachedFacts: []string{"augeas"}}, true},
		"default":  {"no release is the default release", Definition{Packages: base.Packages, CachedFacts: base.CachedFacts}, true},
		"release":  {"another release is another base", Definition{Release: "bookworm", Packages: base.Packages, CachedFacts: base.CachedFacts}, false},
		"package":  {"one package less is another base", Definition{Release: "trixie", Packages: []string{"rsync"}, CachedFacts: base.CachedFacts}, false},
		"enabled":  {"what stays enabled is part of the base", Definition{Release: "trixie", Packages: base.Packages, Enabled: []string{"rsync"}, CachedFacts: base.CachedFacts}, false},
		"facts":    {"cached facts are a file in the base", Definition{Release: "trixie", Packages: base.Packages}, false},
		"prepared": {"a preparation makes another base", Definition{Release: "trixie", Packages: base.Packages, CachedFacts: base.CachedFacts, Preparation: Preparation{Script: "true", Names: []string{"a.test", "a"}}}, false},
		"between":  {"a package and a fact of one name are not confused", Definition{Release: "trixie", Packages: []string{"augeas", "puppet-agent", "rsync"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := base.Digest() == tt.other.Digest(); got != tt.same {
				t.Errorf("%s: same digest: got %v, want %v", tt.reason, got, tt.same)
			}
			if err := tt.other.Digest().Validate(); err != nil {
				t.Errorf("digest: %v", err)
			}
		})
	}
}

func TestPreparationDigest(t *testing.T) {
	base := Definition{Packages: []string{"rsync"}, Preparation: Preparation{Script: "a\n", Names: []string{"a.test", "a", "b"}}}
	tests := map[string]struct {
		reason string
		change func(*Definition)
		same   bool
	}{
		"parent order": {"equal parents are one parent", func(d *Definition) { d.Packages = []string{"rsync", "rsync"} }, true},
		"parent":       {"another parent is another base", func(d *Definition) { d.Packages = []string{"curl"} }, false},
		"script":       {"another script is another base", func(d *Definition) { d.Preparation.Script = "b\n" }, false},
		"name":         {"scripts use the host's name", func(d *Definition) { d.Preparation.Names = []string{"b.test", "b", "b"} }, false},
		"alias":        {"and its aliases", func(d *Definition) { d.Preparation.Names = []string{"a.test", "a"} }, false},
		"moved": {"a line moved from the script to the names is not confused", func(d *Definition) {
			d.Preparation = Preparation{Script: "", Names: []string{"a.test", "a", "b\nscript\na"}}
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			other := base
			tt.change(&other)
			if got := base.Digest() == other.Digest(); got != tt.same {
				t.Errorf("%s: same digest: got %v, want %v", tt.reason, got, tt.same)
			}
		})
	}
}

func TestDefinitionParents(t *testing.T) {
	prepared := Definition{Release: "bookworm", Packages: []string{"b", "a"}, Preparation: Preparation{Script: "true", Names: []string{"a.test", "a"}}}
	tests := map[string]struct {
		reason string
		of     Definition
		want   []Definition
	}{
		"plain":    {"a plain base is made of nothing", Definition{}, nil},
		"packages": {"packages are baked into a plain base", Definition{Packages: []string{"curl"}}, []Definition{{Release: "trixie"}}},
		"facts":    {"and so is a cache of facts", Definition{CachedFacts: []string{"augeas"}}, []Definition{{Release: "trixie"}}},
		"prepared": {"a host is prepared on its packages' base", prepared, []Definition{{Release: "bookworm", Packages: []string{"a", "b"}}, {Release: "bookworm"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []Definition
			for d, ok := tt.of.parent(); ok; d, ok = d.parent() {
				got = append(got, d)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func TestDefinitionValidate(t *testing.T) {
	tests := map[string]struct {
		reason string
		def    Definition
		want   string
	}{
		"empty":   {"the default release without packages is a base", Definition{}, ""},
		"good":    {"names with all characters that Debian allows", Definition{Release: "bookworm", Packages: []string{"g++", "libssl3.0", "0ad"}}, ""},
		"release": {"a release that has no recipe is refused with those that have", Definition{Release: "sid"}, `release "sid" is unknown: known releases are trixie, bookworm`},
		"option":  {"a package cannot be an option of apt", Definition{Packages: []string{"-y"}}, `package "-y": not the name of a Debian package`},
		"unit":    {"a pattern cannot end the shell's word", Definition{Enabled: []string{"a) rm"}}, `unit "a) rm": not the name or pattern of a unit`},
		"long":    {"the kernel takes no argument of that length", Definition{Preparation: Preparation{Script: strings.Repeat("x", maxScript+1)}}, "the script that prepares a host has 65537 bytes, but may have at most 65536"},
		"zero":    {"an argument ends at a zero byte", Definition{Preparation: Preparation{Script: "echo \x00"}}, "the script that prepares a host contains a zero byte: it must be text"},
		"no name": {"a host that is prepared boots by its name", Definition{Preparation: Preparation{Script: "true", Names: []string{"a.test"}}}, `the script that prepares a host needs the host's full and short name: it has ["a.test"]`},
		"fact":    {"a fact cannot end the quoted word in facter.conf", Definition{CachedFacts: []string{`a" : 1`}}, `fact "a\" : 1": not the name of a fact`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.def.Validate()
			got := ""
			if err != nil {
				got = err.Error()
				if tutti.CodeOf(err) != tutti.CodeInvalid {
					t.Errorf("%s: code %q, want invalid", tt.reason, tutti.CodeOf(err))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
