package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

func TestDefinitionDigest(t *testing.T) {
	base := Definition{Release: "trixie", Packages: []string{"puppet-agent", "rsync"}, CachedFacts: []string{"augeas"}}
	tests := map[string]struct {
		reason string
		other  Definition
		same   bool
	}{
		"order":   {"the order of packages changes nothing in a base", Definition{Release: "trixie", Packages: []string{"rsync", "puppet-agent"}, CachedFacts: []string{"augeas"}}, true},
		"doubled": {"a package named twice is installed once", Definition{Release: "trixie", Packages: []string{"rsync", "puppet-agent", "rsync"}, CachedFacts: []string{"augeas"}}, true},
		"default": {"no release is the default release", Definition{Packages: base.Packages, CachedFacts: base.CachedFacts}, true},
		"release": {"another release is another base", Definition{Release: "bookworm", Packages: base.Packages, CachedFacts: base.CachedFacts}, false},
		"package": {"one package less is another base", Definition{Release: "trixie", Packages: []string{"rsync"}, CachedFacts: base.CachedFacts}, false},
		"enabled": {"what stays enabled is part of the base", Definition{Release: "trixie", Packages: base.Packages, Enabled: []string{"rsync"}, CachedFacts: base.CachedFacts}, false},
		"facts":   {"cached facts are a file in the base", Definition{Release: "trixie", Packages: base.Packages}, false},
		"between": {"a package and a fact of one name are not confused", Definition{Release: "trixie", Packages: []string{"augeas", "puppet-agent", "rsync"}}, false},
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

func TestDefinitionValidate(t *testing.T) {
	tests := map[string]struct {
		reason string
		def    Definition
		want   string
	}{
		"empty":   {"the default release without packages is a base", Definition{}, ""},
		"good":    {"names with all characters that Debian allows", Definition{Release: "bookworm", Packages: []string{"g++", "libssl3.0", "0ad"}}, ""},
		"release": {"a release that has no recipe is refused with those that have", Definition{Release: "sid"}, `release "sid": known are trixie, bookworm`},
		"option":  {"a package cannot be an option of apt", Definition{Packages: []string{"-y"}}, `package "-y": not the name of a Debian package`},
		"unit":    {"a pattern cannot end the shell's word", Definition{Enabled: []string{"a) rm"}}, `unit "a) rm": not the name or pattern of a unit`},
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
